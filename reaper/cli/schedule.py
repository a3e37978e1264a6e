"""
`reaper schedule`: what a schedule will do, or what will be done with a machine that is under one.

Computed from the configuration and what is stored; it asks no cloud and changes nothing. Every time is shown in the
schedule's own zone and in yours, with holidays and changes of the clocks marked.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from reaper.cli import exits, screen
from reaper.cli.naming import Nobody, find
from reaper.cli.opened import configuration_of, store_of
from reaper.config.values import Unreadable, zone
from reaper.decide.findings import span_text
from reaper.decide.schedule import changes, spell
from reaper.errors import UsageError
from reaper.model.policy import Configuration, Hours
from reaper.model.schedule import HOURS_TAG, Schedule

if TYPE_CHECKING:
    from reaper.decide.facts import Facts

NAME = "schedule"
HELP = "show what a schedule does in the coming week, or what is done with a machine"
LOG_LEVEL = "warning"
EXAMPLES = """\
examples:
  reaper schedule                         every schedule: what it wants now, and until when
  reaper schedule office                  what it does in the coming week, in its zone and in yours
  reaper schedule office --days 30 --from 2026-12-20
  reaper schedule trainer-7               what is done with a machine under its schedule
  reaper schedule office --zone Asia/Tokyo --json

exit codes: 0 done, 2 usage or configuration, 3 there is no schedule, or the machine is under none
"""

MOST_DAYS = 800


@dataclass(frozen=True, slots=True)
class Told:
    """``facts``: of a machine; None: a schedule alone."""

    hours: Hours
    start: datetime
    end: datetime
    now: datetime
    mine: tzinfo | None
    facts: "Facts | None" = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a schedule of [hours], or a machine by its id or name")
    parser.add_argument("--days", type=int, default=7, metavar="N", help="how many days ahead (default 7)")
    parser.add_argument("--from", dest="start", metavar="TIME", help="from when, as 2026-12-20 or 2026-12-20T12:00+01:00 (default now)")
    parser.add_argument("--zone", metavar="ZONE", help='your own zone, as "Asia/Tokyo" (default that of this machine)')


def run(args: argparse.Namespace) -> int:
    """Raises UsageError, ConfigurationError, StoreError."""
    configuration, now = configuration_of(args), args.clock.now()
    if not 1 <= args.days <= MOST_DAYS:
        raise UsageError(f"--days {args.days} is out of range; write 1 to {MOST_DAYS}")
    mine = _zone(args.zone)
    if args.name is None:
        return _all(configuration, now, mine, args.json)
    named = next((hours for hours in configuration.hours if hours.name.casefold() == args.name.casefold()), None)
    if named is not None:
        start = _start(args.start, ZoneInfo(named.schedule.zone), now)
        return _tell(Told(named, start, start + timedelta(days=args.days), now, mine), args.json)
    facts = _machine(args, configuration, now)
    hours = facts.policy.hours if facts.policy is not None and len(facts.policies) == 1 else None
    if hours is None:
        why = facts.hours_unread or ("two policies match it" if len(facts.policies) > 1 else f"neither its policy nor its tag {HOURS_TAG} names one")
        if args.json:
            screen.result({"resource": str(facts.instance.id), "hours": None, "because": why})
        else:
            screen.say(screen.console(), f"{facts.instance.title} ({facts.instance.id}) is under no schedule: {why}")
        return exits.NOTHING
    start = _start(args.start, ZoneInfo(hours.schedule.zone), now)
    return _tell(Told(hours, start, start + timedelta(days=args.days), now, mine, facts), args.json)


def _zone(text: str | None) -> tzinfo | None:
    """None: this machine's own."""
    if text is None:
        return None
    try:
        return ZoneInfo(zone(text))
    except Unreadable as error:
        raise UsageError(f"--zone: {error}") from error


def _start(text: str | None, place: tzinfo, now: datetime) -> datetime:
    if text is None:
        return now
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--from {text!r} is not a time; write 2026-12-20, or 2026-12-20T12:00+01:00") from error
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=place)).astimezone(UTC)


def _machine(args: argparse.Namespace, configuration: Configuration, now: datetime) -> "Facts":
    from reaper.service.gather import Gathering, read_known
    from reaper.service.mornings import read
    from reaper.service.owed import starting
    from reaper.service.watch import Watch

    with store_of(args) as store:
        try:
            found = find(store, args.name)
        except Nobody as error:
            known = ", ".join(hours.name for hours in configuration.hours) or "none is written"
            raise UsageError(f"{args.name!r} is no schedule ({known}), and {error}") from error
        if found.instance is None:
            raise UsageError(f"{found.id} is not in the newest listing, so which schedule it is under is not known; `reaper inventory` shows what is")
        watch = Watch(store)
        watch.catch_up(store, now)
        gathering = Gathering(found.inventory, read_known(store, now), watch, configuration, now)
        gathering.mornings = read(store, gathering, now, starting(store))
        return gathering.facts(found.id, now)


# --- what is told -----------------------------------------------------------------------------------------------------


def rows(told: Told) -> list[dict[str, Any]]:
    """Every change, every holiday and every change of the clocks, in order. ``what``: "on", "off", "holiday" or "clocks"."""
    schedule, place = told.hours.schedule, ZoneInfo(told.hours.schedule.zone)
    found: list[dict[str, Any]] = []
    for moment, on in changes(schedule, told.start - timedelta(seconds=1), told.end):
        found.append(_row(told, moment, "on" if on else "off", _does(told, moment, on)))
    day = told.start.astimezone(place).replace(hour=0, minute=0, second=0, microsecond=0)
    while day < told.end.astimezone(place):
        why = schedule.off_because(day.date())
        if why is not None and any(interval.day == day.weekday() for interval in schedule.on):
            found.append(_row(told, max(day.astimezone(UTC), told.start), "holiday", f"{why}: no hours begin on {day:%a %Y-%m-%d}"))
        day = (day + timedelta(days=1)).replace(hour=0)  # by the wall: a day of 23 hours is a day
    found += [_row(told, moment, "clocks", text) for moment, text in _clock_changes(schedule, told)]
    return sorted(found, key=lambda row: (row["at"], row["what"] in ("on", "off")))


def _clock_changes(schedule: Schedule, told: Told) -> list[tuple[datetime, str]]:
    """Of the schedule's zone, to the minute."""
    place, found = ZoneInfo(schedule.zone), []
    hour = told.start.replace(minute=0, second=0, microsecond=0)
    while hour < told.end:
        then = hour + timedelta(hours=1)
        before, after = hour.astimezone(place).utcoffset(), then.astimezone(place).utcoffset()
        if before is not None and after is not None and before != after:
            moment = next(m for n in range(1, 61) if (m := hour + timedelta(minutes=n)).astimezone(place).utcoffset() != before)
            found.append((moment, f"the clocks go {'forward' if after > before else 'back'} by {span_text(abs(after - before))} in {schedule.zone}"))
        hour = then
    return found


def _does(told: Told, moment: datetime, on: bool) -> str:
    schedule = told.hours.schedule
    if on:
        return "what was stopped outside these hours is started, so that it is ready now" if schedule.starts else "nothing is started"
    if not schedule.stops:
        return "nothing is stopped"
    warned = (moment - told.hours.wait).astimezone(ZoneInfo(schedule.zone))
    return f"people are warned from {warned:%H:%M}; what has been idle for {span_text(told.hours.idle_for)} is stopped"


def _row(told: Told, moment: datetime, what: str, text: str) -> dict[str, Any]:
    return {
        "at": screen.iso(moment), "there": _wall(moment, ZoneInfo(told.hours.schedule.zone)), "here": _wall(moment, told.mine),
        "what": what, "because": text,
    }  # fmt: skip


def _wall(moment: datetime, place: tzinfo | None) -> str:
    return f"{moment.astimezone(place):%a %Y-%m-%d %H:%M %Z}"


def document(told: Told) -> dict[str, Any]:
    now_is, hours = spell(told.hours.schedule, told.now), told.hours
    return {
        "hours": hours.name, "zone": hours.schedule.zone, "only": hours.schedule.only, "digest": hours.digest,
        "now": "on" if now_is.on else "off", "since": screen.iso(now_is.since), "until": screen.iso(now_is.until),
        "from": screen.iso(told.start), "to": screen.iso(told.end), "rows": rows(told),
        "machine": _machine_document(told.facts) if told.facts is not None else None,
    }  # fmt: skip


def _machine_document(facts: "Facts") -> dict[str, Any]:
    morning = facts.morning
    return {
        "resource": str(facts.instance.id), "name": facts.instance.name, "state": facts.instance.state.value,
        "policy": facts.policy.name if facts.policy is not None else None,
        "start": None if morning is None else {
            "begins_at": screen.iso(morning.begins_at), "ready_at": screen.iso(morning.ready_at), "refused": morning.refused, "waits": morning.waits,
        },
        "kept_until": screen.iso(max((snooze.until for snooze in facts.snoozes), default=None)),
    }  # fmt: skip


def _tell(told: Told, as_json: bool) -> int:
    said = document(told)
    if as_json:
        screen.result(said)
        return exits.DONE
    console = screen.console()
    screen.say(console, *_head(told))
    table: Sequence[Sequence[screen.Cell]] = [(row["there"], row["here"], row["what"], row["because"]) for row in said["rows"]]
    if table:
        screen.table(console, (f"in {told.hours.schedule.zone}", "yours", "wants", "what happens"), table, wide=("what happens",))
    else:
        screen.say(console, "nothing changes in this time")
    return exits.DONE


def _head(told: Told) -> list[str]:
    lines = [_now(told.hours, told.now, told.mine)]
    facts = told.facts
    if facts is None:
        return lines
    machine = facts.instance
    lines.insert(0, f"{machine.title} ({machine.id}) is {machine.state}, under policy {facts.policy.name if facts.policy is not None else '?'}")
    place = ZoneInfo(told.hours.schedule.zone)
    if facts.morning is not None:
        refused = f"; not: {facts.morning.refused}" if facts.morning.refused is not None else ""
        lines.append(f"it is started at {_wall(facts.morning.begins_at, place)}: {facts.morning.because}{refused}")
    if machine.state.counts and not spell(told.hours.schedule, told.now).on and facts.closing is None and told.hours.schedule.stops:
        lines.append("it was started since hours ended, and so is left until they end the next time")
    lines += [f"kept until {_wall(snooze.until, place)} by {snooze.who}: {snooze.reason}" for snooze in facts.snoozes]
    return lines


def _now(hours: Hours, now: datetime, mine: tzinfo | None) -> str:
    now_is, place = spell(hours.schedule, now), ZoneInfo(hours.schedule.zone)
    until = f"until {_wall(now_is.until, place)} ({_wall(now_is.until, mine)} for you)" if now_is.until is not None else "for more than a year"
    return f"hours {hours.name} want machines {'on' if now_is.on else 'off'} {until}" + (f'; only = "{hours.schedule.only}"' if hours.schedule.only else "")


def _all(configuration: Configuration, now: datetime, mine: tzinfo | None, as_json: bool) -> int:
    if as_json:
        every = [(hours, spell(hours.schedule, now)) for hours in configuration.hours]
        screen.result({
            "schedules": [
                {"hours": hours.name, "zone": hours.schedule.zone, "now": "on" if now_is.on else "off", "until": screen.iso(now_is.until)} for hours, now_is in every
            ]
        })  # fmt: skip
    elif configuration.hours:
        screen.say(screen.console(), *[_now(hours, now, mine) for hours in configuration.hours])
    else:
        screen.say(screen.console(), f"no schedule is written in {configuration.source}; add [hours.NAME], and name it in a policy or by the tag {HOURS_TAG}")
    return exits.DONE if configuration.hours else exits.NOTHING
