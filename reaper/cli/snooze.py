"""`reaper snooze`: a person keeps a machine for a while, at most for as long as the operator allows."""

import argparse
from datetime import UTC, datetime, timedelta

from reaper.cli import exits, screen
from reaper.cli.hands import person
from reaper.cli.naming import Found, Nobody, find
from reaper.cli.opened import configuration_of, store_of
from reaper.config.values import Unreadable, duration, written
from reaper.errors import ConfigurationError, Refused, UsageError
from reaper.service.snooze import end_of, snooze

NAME = "snooze"
HELP = "keep a machine for a while"
LOG_LEVEL = "warning"
EXAMPLES = """\
examples:
  reaper snooze trainer-7 --for 4h --reason "debugging NCCL"
  reaper snooze i-0a1b2c3d4e5f60718 --until 2030-12-24T18:00+01:00 --reason "paper deadline"
  reaper snooze aws:123456789012:eu-west-1:instance:i-0abc --for 2d --reason "on holiday" --who ada

Snoozes add up: the latest end wins. A time without a zone is taken as the latest it can mean.
exit codes: 0 kept, 2 usage, 4 refused (a machine never seen needs its whole id)
"""

USUAL_CAP = timedelta(days=5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="whole id, native id or name of a machine")
    end = parser.add_mutually_exclusive_group(required=True)
    end.add_argument("--for", dest="span", metavar="SPAN", help="how long, as 30m, 4h, 1h30m or 2d")
    end.add_argument("--until", metavar="TIME", help="until when, as 2026-12-24T18:00+01:00, or a date (its end)")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why; it is shown to whoever asks why the machine is kept")
    parser.add_argument("--who", metavar="NAME", help="who keeps it (default: your user name)")


def run(args: argparse.Namespace) -> int:
    """Raises UsageError, Refused, StoreError."""
    now: datetime = args.clock.now()
    until = _end(args, now)
    reason = screen.clean(args.reason)
    if not reason:
        raise UsageError('--reason is blank; say why the machine is kept, as --reason "debugging NCCL"')
    with store_of(args) as store:
        try:
            found = find(store, args.id)
        except Nobody as error:
            raise Refused(str(error)) from error
        cap, whose = _cap(args, found)
        kept = snooze(store, found.id, until, screen.clean(args.who or "", 100) or person(), reason, cap, now)
    if args.json:
        screen.result(
            {
                "resource": str(found.id), "snooze": kept.snooze.id, "until": screen.iso(kept.until), "asked_until": screen.iso(until),
                "this_until": screen.iso(kept.snooze.until), "cap_s": round(cap.total_seconds()), "capped": kept.capped, "seen": found.seen,
            }
        )  # fmt: skip
        return exits.DONE
    console = screen.console()
    local = kept.until.astimezone()
    screen.say(
        console,
        f"{found.title} ({found.id}) is kept until {local:%Y-%m-%d %H:%M:%S %Z} ({kept.until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC), "
        f"for {written(timedelta(seconds=round((kept.until - now).total_seconds())))}",
        f"at most {written(cap)} from now may be asked for ({whose})" + ("; what you asked for was longer and ends there" if kept.capped else ""),
    )
    if kept.until > kept.snooze.until:
        screen.say(console, f"an earlier snooze ends later than this one ({screen.when(kept.snooze.until)}), and the latest end counts")
    if not found.seen:
        screen.say(console, "note: this machine was never listed and never reported; the id is taken as you wrote it")
    return exits.DONE


def _end(args: argparse.Namespace, now: datetime) -> datetime:
    if args.until is not None:
        return end_of(args.until, now)
    try:
        return now + duration(args.span)
    except Unreadable as error:
        raise UsageError(f"--for: {error.what}; write it as 30m, 4h, 1h30m or 2d") from error


def _cap(args: argparse.Namespace, found: Found) -> tuple[timedelta, str]:
    """The longest that its policies allow, and by what. A configuration that cannot be read must not keep a person from keeping a machine."""
    try:
        configuration = configuration_of(args)
    except ConfigurationError:
        return USUAL_CAP, "the configuration cannot be read, so the usual cap counts"
    policies = configuration.policies_for(found.instance) if found.instance is not None else ()
    if not policies:
        return USUAL_CAP, "no policy is known for it, so the usual cap counts"
    longest = max(policies, key=lambda policy: policy.snooze_up_to)
    return longest.snooze_up_to, f"policy {longest.name}"
