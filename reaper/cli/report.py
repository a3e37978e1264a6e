"""
`reaper report waste`: every unattached disk, orphan snapshot, unassociated address and load balancer without a target that can be seen, idle GPUs
in busy machines, starved ones, those that never had an agent, policies that could not act and what held them, exemptions without end.

Lists the clouds itself, or uses what a leading reaper keeps fresh. It touches nothing.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from reaper.cli import exits, fleet, screen
from reaper.cli.opened import configuration_of, leader_of, parts_of
from reaper.cli.screen import Cell
from reaper.decide.budget import price_of
from reaper.decide.leftovers import Item, Keys, Machine, age_told, items, listed_at_of, total
from reaper.errors import UsageError
from reaper.model.policy import Configuration, Mode, Policy, Selector
from reaper.service.cycle import CycleResult
from reaper.service.shelves import Room, kept

NAME = "report"
HELP = "list what costs money and does no work, the dearest first"
LOG_LEVEL = "warning"
EXAMPLES = """\
examples:
  reaper report waste                     dearest first, with owner, age and dollars a month
  reaper report waste --owner ada         what is hers
  reaper report waste --csv > waste.csv   for a spreadsheet
  reaper report waste --json | tail -n 1  one JSON object, for machines

"-" under dollars is a price that is not known, which is not zero. How long a disk has been attached to nothing is what a running
reaper saw itself: EBS tells no such moment.

exit codes: 0 done, 1 no cloud could be read, 2 usage or configuration, 3 nothing was found
"""

COLUMNS = ("what", "resource", "name", "owner", "project", "environment", "age_days", "usd_per_month", "because", "acted_on")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("waste",), help="the report")
    parser.add_argument("--owner", metavar="NAME", help="only what is this owner's")
    parser.add_argument("--csv", action="store_true", help="comma-separated values with a line of names, instead of a table")


def run(args: argparse.Namespace) -> int:
    """Raises ConfigurationError, StoreError."""
    if args.csv and args.json:
        raise UsageError("--csv and --json are two ways to say the same; write one of them")
    configuration, now = configuration_of(args), args.clock.now()
    # Observe whatever the configuration says: this command is handed clouds whose verbs raise.
    with parts_of(args, configuration, Mode.OBSERVE) as parts:
        led = leader_of(parts.store, now) is not None
        parts.watch.rebuild(parts.store, now)
        result = parts.cycle.preview(configuration, fetch=not led)
        room = kept(parts.store) if led else parts.shelves.look()
    found = [item for item in _items(result, room, configuration, now) if args.owner is None or item.owner == args.owner]
    troubles = _troubles(result, room, now)
    unread = fleet.unreadable(result.inventory) and not room.disks
    code = exits.FAILED if unread else exits.DONE if found else exits.NOTHING
    if args.csv:
        _csv(found)
    elif args.json:
        usd, unknown = total(found)
        screen.result({"items": [_plain(item) for item in found], "usd_per_month": round(usd, 2), "without_price": unknown, "unread": troubles})
    else:
        _show(found)
    if not args.json:
        for trouble in troubles:
            screen.say(screen.console(to_stderr=args.csv), f"not read: {trouble}")
    return code


def _items(result: CycleResult, room: Room, configuration: Configuration, now: datetime) -> tuple[Item, ...]:
    machines = [
        Machine(
            row.candidate.instance, row.decision, price_of(row.candidate.instance.type, configuration.prices, row.candidate.instance.hourly_usd), row.waste, row.idle_gpus,
            fleet.running_since(row.candidate.instance, result.inventory),
        )
        for row in result.rows
    ]  # fmt: skip
    shelves = listed_at_of({place: shelf.listed_at for place, shelf in room.shelves.items()})
    return items(machines, room.disks.values(), shelves, room.leftovers.values(), configuration, _keys(configuration.policies), now)


def _keys(policies: Sequence[Policy]) -> Keys:
    """As the first policy says, which inherits what [defaults] say: a disk is under none."""
    first = policies[0] if policies else Policy(name="", when=Selector())
    return Keys(first.owner, first.project, first.environment)


def _troubles(result: CycleResult, room: Room, now: datetime) -> list[str]:
    found = [*room.problems, *result.inventory.problems]
    found += [f"{shelf.place}: {shelf.failed}; its disks are as of {screen.ago(shelf.listed_at, now)}" for shelf in room.shelves.values() if shelf.failed]
    found += [f"{place['place']}: {place['because']}" for place in fleet.failed_places(result.inventory, now)]
    found += [why for shelf in room.shelves.values() for why in shelf.unread]
    return list(dict.fromkeys(found))


def _plain(item: Item) -> dict[str, Any]:
    return {
        "what": item.what, "resource": str(item.resource) if item.resource is not None else None, "name": item.name, "owner": item.owner,
        "project": item.project, "environment": item.environment,
        "age_days": round(item.age.total_seconds() / 86_400, 2) if item.age is not None else None,
        "made_days_ago": round(item.since_made.total_seconds() / 86_400, 2) if item.since_made is not None else None,
        "usd_per_month": round(item.usd_per_month, 2) if item.usd_per_month is not None else None, "because": item.because, "acted_on": item.acted_on,
    }  # fmt: skip


def _csv(found: Sequence[Item]) -> None:
    """Cells that a spreadsheet would take for a formula begin with an apostrophe: names are anybody's words."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for item in found:
        plain = _plain(item)
        writer.writerow([_cell(plain[column]) for column in COLUMNS])


def _cell(value: object) -> object:
    if value is None:
        return ""
    text = screen.clean(str(value), 1000)
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@") else value if not isinstance(value, str) else text


def _show(found: Sequence[Item]) -> None:
    console = screen.console()
    if not found:
        screen.say(console, "nothing was found that costs money and does no work")
        return
    slim = screen.narrow(console)
    rows: list[list[Cell]] = []
    for item in found:
        id = "" if item.resource is None else str(item.resource)
        where = id.rpartition(":")[2] if slim else id
        rows.append([
            screen.dollars(item.usd_per_month) if item.usd_per_month is not None else "-", item.what, (item.name, where if where != item.name else ""),
            (item.owner or "-", item.project or ""), age_told(item), item.because if item.acted_on else (item.because, "only reported"),
        ])  # fmt: skip
    screen.table(console, ("$ a month", "what", "which", "owner", "age", "because"), rows, wide=("because",), ids=("which",))
    usd, unknown = total(found)
    left = f", beside {unknown} without a price" if unknown else ""
    cost = f"{screen.dollars(usd)} a month lie about{left}" if usd or not unknown else f"what it costs is not known of {unknown} that lie about"
    screen.say(console, f"{cost}; nothing of it is touched by this report")
