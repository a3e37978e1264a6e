"""
`reaper apply`: a person approves a plan.

It opens no gate: each machine is looked at afresh, and what is no longer due, idle or within budget stays up. With the
lease free this process acts; else the approval is filed for the reaper that leads.
"""

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reaper.cli import exits, screen
from reaper.cli.hands import confirmed, file, leading, person, require_enforce
from reaper.cli.opened import configuration_of, parts_of
from reaper.errors import Refused, UsageError
from reaper.model.plan import Outcome, Plan
from reaper.model.policy import Configuration
from reaper.ports import Lease
from reaper.service.continuity import Continuity
from reaper.service.cycle import running_in_scope
from reaper.service.execute import Result
from reaper.service.inventory import refresh

if TYPE_CHECKING:
    from reaper.wiring import Parts

NAME = "apply"
HELP = "carry out a plan now, through the same gates as the daemon"
LOG_LEVEL = "warning"
EXAMPLES = """\
examples:
  reaper plan                                        prints the plan's id
  reaper apply p-20261130T170000-1a2b3c              shows what it will change, and asks
  reaper apply p-20261130T170000-1a2b3c --yes        does not ask

exit codes: 0 done or filed, 1 failed, 2 usage, 3 the plan holds nothing to do, 4 refused or nothing stood the second look
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="the id that `reaper plan` printed")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    """Raises UsageError, Refused, ConfigurationError, StoreError."""
    configuration = configuration_of(args)
    require_enforce(configuration, "stop")
    with parts_of(args, configuration) as parts:
        plan = parts.store.plan(args.plan)
        if plan is None:
            raise UsageError(f"there is no plan {args.plan!r} (the newest 200 are kept); `reaper plan` makes one")
        _announce(plan, configuration, args)
        if not plan.actions:
            if args.json:
                screen.result({"plan": plan.id, "results": [], "withheld": len(plan.withheld), "filed": None})
            return exits.NOTHING
        if not confirmed(args, f"carry out {len(plan.actions)} action{'s' if len(plan.actions) != 1 else ''}?"):
            raise Refused("not confirmed; nothing was changed")
        with leading(parts) as lease:
            if lease is None:
                return _file(args, plan, parts)
            results = _act(args, plan, parts, configuration, lease)
    return _tell(args, plan, results)


def _announce(plan: Plan, configuration: Configuration, args: argparse.Namespace) -> None:
    console = screen.console(to_stderr=args.json)
    screen.say(console, f"plan {plan.id}, made {screen.ago(plan.made_at, args.clock.now())}, will change:" if plan.actions else f"plan {plan.id} holds nothing to do")
    for planned in plan.actions:
        saves = f", saves {screen.dollars(planned.usd_per_hour)} an hour" if planned.usd_per_hour is not None else ""
        screen.say(console, f"  {planned.action} {planned.name} ({planned.resource}): {planned.because}{saves}")
    for withheld in plan.withheld:
        screen.say(console, f"  not {withheld.action} {withheld.name} ({withheld.resource}), withheld by {withheld.by}: {withheld.because}")
    if plan.configuration_digest != configuration.digest:
        screen.say(console, "note: the configuration has changed since; what its terms no longer allow will not be done")


def _file(args: argparse.Namespace, plan: Plan, parts: "Parts") -> int:
    now: datetime = args.clock.now()
    approval = file(parts.store, plan.id, person(), [a.resource for a in plan.actions], f"approved plan {plan.id}", now)
    if args.json:
        screen.result({"plan": plan.id, "results": [], "withheld": len(plan.withheld), "filed": approval.id})
    else:
        screen.say(screen.console(), f"a reaper is running: approval {approval.id} is filed, and it acts within a cycle; see `reaper audit`")
    return exits.DONE


def _act(args: argparse.Namespace, plan: Plan, parts: "Parts", configuration: Configuration, lease: Lease) -> tuple[Result, ...]:
    broken = Continuity(parts.store).broken(configuration, args.clock.now())
    if broken is not None:
        raise Refused(f"{broken}: people have to be warned anew first; start `reaper run`, and plan again after their wait")
    parts.watch.rebuild(parts.store, args.clock.now())
    refresh(tuple(parts.clouds.values()), parts.store, args.clock.now())
    gathering = parts.cycle.gather(configuration)
    parts.cycle.executor.settle_open(gathering)
    return parts.cycle.apply(plan, gathering, lease, running_in_scope(gathering, configuration), person())


def _tell(args: argparse.Namespace, plan: Plan, results: tuple[Result, ...]) -> int:
    told = [_document(result) for result in results]
    if args.json:
        screen.result({"plan": plan.id, "results": told, "withheld": len(plan.withheld), "filed": None})
    else:
        console = screen.console()
        for one in told:
            screen.say(console, f"{one['action']} {one['name']} ({one['resource']}): {one['outcome']}" + (f"; {one['because']}" if one["because"] else ""))
            if one["attempt"] is not None and one["outcome"] in ("done", "under way"):
                screen.say(console, f"  to take it back: reaper undo {one['attempt']}")
    outcomes = {one["outcome"] for one in told}
    if outcomes & {Outcome.FAILED.value, Outcome.REFUSED.value, Outcome.ABANDONED.value}:
        return exits.FAILED
    return exits.REFUSED if outcomes == {"withdrawn"} else exits.DONE


def _document(result: Result) -> dict[str, Any]:
    attempt, planned = result.attempt, result.planned
    if attempt is None:
        outcome, because = "withdrawn", result.withdrawn
    elif attempt.outcome is None:
        outcome, because = "under way", "the cloud accepted it; a later look closes it"
    else:
        outcome, because = attempt.outcome.value, attempt.detail
    return {
        "resource": str(planned.resource), "name": planned.name, "action": planned.action.value, "outcome": outcome,
        "because": because, "attempt": attempt.id if attempt is not None else None,
    }  # fmt: skip
