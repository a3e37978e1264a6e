"""Which schedule each machine is under, and what an edited schedule will do first."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from reaper import log
from reaper.decide.findings import span_text
from reaper.decide.schedule import spell
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.kinds.instance import Instance
from reaper.model.policy import Configuration, Hours, Policy
from reaper.model.schedule import HOURS_TAG, NEVER
from reaper.ports import Store

_log = log.get(__name__)

_FACT = "hours"


class NamedHours:
    """
    The schedules of one configuration, by the names that machines' tags say. Key and name are read without regard to case:
    people write them by hand, and Google's labels are lower case.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._known = {hours.name.casefold(): hours for hours in configuration.hours}
        self._made: dict[tuple[str, str], Policy] = {}

    def applied(self, policies: tuple[Policy, ...], instance: Instance) -> tuple[Policy, ...]:
        """The policies under the schedule that the machine's tag names. One that cannot be read puts it under none."""
        names = _named(instance)
        if not names:
            return policies
        word = next(iter(names)) if len(names) == 1 else None
        hours = self._known.get(word) if word is not None else None
        return tuple(self._under(policy, hours) for policy in policies)

    def unread(self, instance: Instance) -> str | None:
        """Why the tag that names its schedule means nothing; None: it can be read, or is not there."""
        names = _named(instance)
        if len(names) > 1:
            return f"it has several tags {HOURS_TAG} ({', '.join(sorted(names))}): its schedule is not known, and nothing is done by the clock"
        word = next(iter(names), None)
        if word is None or word == NEVER or word in self._known:
            return None
        known = ", ".join(sorted(hours.name for hours in self._known.values())) or "none is configured"
        return f"its tag {HOURS_TAG} says {word!r}, which is no schedule ({known}; or {NEVER!r}): nothing is done by the clock"

    def _under(self, policy: Policy, hours: Hours | None) -> Policy:
        """Its digest changes with the schedule, so that a mark made under another one is cleared."""
        key = (policy.name, hours.name if hours is not None else "")
        made = self._made.get(key)
        if made is None:
            digest = policy.digest if policy.hours == hours else f"{policy.digest}+{hours.digest if hours is not None else NEVER}"
            made = self._made[key] = replace(policy, hours=hours, digest=digest)
        return made


def _named(instance: Instance) -> set[str]:
    return {value.strip().casefold() for key, value in instance.tags.items() if key.strip().casefold() == HOURS_TAG}


def notes(configuration: Configuration, instances: Iterable[Instance]) -> tuple[str, ...]:
    """A line for each machine whose schedule cannot be read."""
    named = NamedHours(configuration)
    return tuple(f"{instance.title} ({instance.id}): {why}" for instance in instances if (why := named.unread(instance)) is not None)


def edited(store: Store, configuration: Configuration, under: dict[str, int], now: datetime, *, keep: bool) -> tuple[str, ...]:
    """
    What each schedule that was edited since the last cycle will do first. ``under``: machines by schedule. ``keep``: write
    down that it was said.
    """
    text = store.fact(_FACT)
    before: dict[str, str] | None = json.loads(text) if text is not None else None
    after = {hours.name: hours.digest for hours in configuration.hours}
    if before == after or (before is None and not after):
        return ()
    said = [first(hours, now, under.get(hours.name, 0)) for hours in configuration.hours if (before or {}).get(hours.name) != hours.digest]
    said += [f"hours {name} are gone: what was stopped under them stays stopped" for name in sorted((before or {}).keys() - after.keys())]
    if keep:
        for line in said:
            _log.info("schedule changed", told=line)
        store.append_audit(*(AuditEntry(now, AuditKind.CONFIGURATION, "reaper", line) for line in said))
        store.set_facts({_FACT: json.dumps(after)})
    return tuple(said)


def first(hours: Hours, now: datetime, machines: int | None = None) -> str:
    """What a schedule that takes effect now does first, in its own zone. ``machines`` None: how many are under it is not asked."""
    schedule, now_is = hours.schedule, spell(hours.schedule, now)
    head = f"hours {hours.name}" + (f" take effect ({machines} machine{'s' if machines != 1 else ''})" if machines is not None else "")
    if now_is.until is None:
        what = "they want machines " + ("on" if now_is.on else "off") + ", and nothing changes within a year"
    else:
        wall = now_is.until.astimezone(ZoneInfo(schedule.zone))
        then = f"{wall:%a %Y-%m-%d %H:%M %Z}"
        if now_is.on:
            what = f"first they end at {then}, and what is idle is stopped" if schedule.stops else f"first they end at {then}, and nothing is stopped"
        else:
            stops = f"what is idle for {span_text(hours.idle_for)} is warned and stopped from now on; " if schedule.stops else ""
            what = f"{stops}first they begin at {then}, and what they stopped is started" if schedule.starts else f"{stops}they begin at {then}"
    return f"{head}: {what}"
