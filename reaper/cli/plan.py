"""
`reaper plan`: what would happen now.

Lists the clouds itself, or uses the listing that a leading reaper keeps fresh; decides as the daemon does, with the
marks as they stand; keeps the plan for `reaper apply`. It moves no mark, tells nobody and touches nothing.
"""

import argparse

from reaper.cli import exits, fleet, screen
from reaper.cli.opened import configuration_of, leader_of, mode_note, parts_of
from reaper.model.policy import Mode
from reaper.service.lost import in_effect

NAME = "plan"
HELP = "show what would happen now, and why; touches nothing"
LOG_LEVEL = "warning"
EXAMPLES = """\
examples:
  reaper plan                             with whatever credentials are present
  reaper plan --config reaper.toml        by your own policies
  reaper plan --all                       machines that are stopped as well
  reaper plan --json | tail -n 1          one JSON object, for machines

exit codes: 0 done, 1 no cloud could be read, 2 usage or configuration, 3 there are no machines
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="show stopped machines as well")


def run(args: argparse.Namespace) -> int:
    """Raises ConfigurationError, StoreError."""
    configuration = configuration_of(args)
    # Observe whatever the configuration says: this command is handed clouds whose verbs raise.
    with parts_of(args, configuration, Mode.OBSERVE) as parts:
        led = leader_of(parts.store, args.clock.now()) is not None
        caution = mode_note(parts.store, configuration)
        parts.watch.rebuild(parts.store, args.clock.now())
        result = parts.cycle.preview(configuration, fetch=not led)
        configuration = in_effect(configuration, parts.store)  # as the preview did
    told = fleet.document(result, configuration, by_leader=led)
    code = exit_code(told, unreadable=fleet.unreadable(result.inventory))
    if args.json:
        screen.result(told)
        return code
    console = screen.console()
    fleet.show(told, args.clock.now(), console, everything=args.all)
    if caution is not None:
        screen.say(console, f"note: {caution}")
    if code == exits.NOTHING:
        screen.say(console, "the reaper that leads has listed nothing yet" if led else "there are no machines in the places that were listed")
    screen.say(console, f"plan {result.plan.id}" + (f"; to carry it out now: reaper apply {result.plan.id}" if told["actions"] else ""))
    return code


def exit_code(told: fleet.Document, *, unreadable: bool) -> int:
    if unreadable:
        return exits.FAILED
    return exits.DONE if told["machines"] else exits.NOTHING
