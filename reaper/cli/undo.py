"""
`reaper undo`: start again what was stopped.

Only what we stopped ourselves and nobody touched since. With the lease free this process acts; else it is filed for the
reaper that leads.
"""

import argparse
from typing import TYPE_CHECKING

from reaper.cli import exits, screen
from reaper.cli.hands import confirmed, file, leading, person, require_enforce
from reaper.cli.opened import configuration_of, parts_of
from reaper.errors import Refused
from reaper.model.plan import Attempt, Outcome
from reaper.model.policy import Configuration
from reaper.ports import Lease
from reaper.service.cycle import running_in_scope
from reaper.service.execute import Withdrawn
from reaper.service.undo import APPROVAL_PREFIX, find_stop

if TYPE_CHECKING:
    from reaper.wiring import Parts

NAME = "undo"
HELP = "start again what was stopped"
LOG_LEVEL = "warning"
EXAMPLES = """\
examples:
  reaper audit --resource trainer-7       shows the stop, its number and its attempt
  reaper undo 1234                        by the number of its line in the audit; asks first
  reaper undo a-1a2b3c4d5e6f --yes        by the attempt, without asking

Needs mode = "enforce", the verb "start" in [scope], and room in the budget of starts. Stops, hibernations and
stop-and-snapshots can be undone; a machine that was ended cannot, its disks are in the snapshots that the audit names.
A machine is started only as we left it: of the same type, with the same disks, interfaces and tags of others, and not
started by anybody since. A start that meets no capacity, a quota or a key that cannot be used is owed: it is tried for
a day, also after a restart, until the machine runs and its agent reports every GPU. Whoever waits for it is told when it
is late (15 minutes) and when it is given up; the tag idle-reaper:owed-start on the machine says until when it is tried.

exit codes: 0 done or filed, 1 failed, 2 usage, 4 refused (somebody touched the machine since, or starting is not allowed)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entry", metavar="ENTRY", help="a line's number in `reaper audit`, or an attempt (a-...)")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    """Raises UsageError, Refused, ConfigurationError, StoreError."""
    configuration = configuration_of(args)
    with parts_of(args, configuration) as parts:
        stopped = find_stop(parts.store, args.entry)
        require_enforce(configuration, "start")
        screen.say(
            screen.console(to_stderr=args.json),
            f"will start {stopped.before.title} ({stopped.resource}), a {stopped.before.type}, stopped {screen.when(stopped.outcome_at or stopped.intent_at)}"
            f" because {stopped.because}",
        )
        if not confirmed(args, "start it?"):
            raise Refused("not confirmed; nothing was changed")
        with leading(parts) as lease:
            if lease is None:
                because = f"asked to undo {stopped.id}"
                filed = file(parts.store, f"{APPROVAL_PREFIX}{stopped.id}", person(), (stopped.resource,), because, args.clock.now())
                if args.json:
                    screen.result({"undone": stopped.id, "resource": str(stopped.resource), "outcome": None, "filed": filed.id})
                else:
                    screen.say(screen.console(), f"a reaper is running: {filed.id} is filed, and it acts within a cycle; see `reaper audit`")
                return exits.DONE
            started = _start(parts, stopped, configuration, lease)
    outcome = started.outcome.value if started.outcome is not None else "under way"
    if args.json:
        told = {"undone": stopped.id, "resource": str(stopped.resource), "outcome": outcome, "attempt": started.id, "because": started.detail, "filed": None}
        screen.result(told)
    else:
        screen.say(screen.console(), f"start {stopped.before.title} ({stopped.resource}): {outcome}" + (f"; {started.detail}" if started.detail else ""))
    return exits.DONE if started.outcome in (None, Outcome.DONE) else exits.FAILED


def _start(parts: "Parts", stopped: Attempt, configuration: Configuration, lease: Lease) -> Attempt:
    gathering = parts.cycle.gather(configuration)
    parts.cycle.executor.settle_open(gathering)
    fresh = parts.store.attempt(stopped.id) or stopped  # settling may just have closed it
    try:
        return parts.cycle.executor.start_again(fresh, gathering, lease, running_in_scope(gathering, configuration), person())
    except Withdrawn as why:
        raise Refused(f"{stopped.resource} is not started: {why.because}") from why
