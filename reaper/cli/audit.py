"""`reaper audit`: the record of what was done, withheld and said. Nothing in it can be changed."""

import argparse
from datetime import datetime
from typing import Any

from reaper.cli import exits, screen
from reaper.cli.naming import find
from reaper.cli.opened import store_of
from reaper.cli.screen import Cell
from reaper.config.values import Unreadable, duration
from reaper.errors import UsageError
from reaper.model.audit import AuditEntry

NAME = "audit"
HELP = "show what was done, withheld and said, and by whom"
LOG_LEVEL = "warning"
EXAMPLES = """\
examples:
  reaper audit                            the newest 50 entries, newest last
  reaper audit --resource trainer-7       of one machine, by id or name
  reaper audit --since 24h --limit 500    a span back, or a time
  reaper audit --json                     one JSON object {"entries": [...]} on the last line

An entry's number, and the attempt it names (a-...), are what `reaper undo` takes.
exit codes: 0 done, 2 usage, 3 there is nothing to show
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--resource", metavar="ID", help="only of one machine: whole id, native id or name")
    parser.add_argument("--since", metavar="SPAN|TIME", help="only what is younger: 24h, 7d, or 2026-12-01T08:00+01:00")
    parser.add_argument("--limit", type=_count, default=50, metavar="N", help="the newest N (default 50)")


def run(args: argparse.Namespace) -> int:
    """Raises UsageError, StoreError."""
    since = _since(args.since, args.clock.now()) if args.since is not None else None
    with store_of(args) as store:
        resource = find(store, args.resource).id if args.resource is not None else None
        entries = store.audit(resource=resource, since=since, limit=args.limit)
    if args.json:
        screen.result({"entries": [document(entry) for entry in entries]})
    elif entries:
        console = screen.console()
        slim = screen.narrow(console)
        columns = ("no.", "when (UTC)", "what", "machine", "by", "because")
        screen.table(console, columns, [row(entry, slim) for entry in entries], wide=("because",), ids=("machine",))
    else:
        print("there is nothing in the record" + (" that fits" if since is not None or resource is not None else " yet"))
    return exits.DONE if entries else exits.NOTHING


def document(entry: AuditEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq, "at": screen.iso(entry.at), "kind": entry.kind.value, "actor": entry.actor, "because": entry.because,
        "resource": str(entry.resource) if entry.resource is not None else None, "action": entry.action, "attempt": entry.attempt,
        "evidence": entry.evidence,
    }  # fmt: skip


def row(entry: AuditEntry, slim: bool) -> list[Cell]:
    machine = "" if entry.resource is None else entry.resource.native if slim else str(entry.resource)
    evidence = ", ".join(f"{key} {value}" for key, value in entry.evidence.items() if value)
    return [
        str(entry.seq),
        (f"{entry.at:%m-%d %H:%M:%S}" if slim else f"{entry.at:%Y-%m-%d %H:%M:%S}"),
        (entry.kind.value, entry.action or "", entry.attempt or ""),
        machine,
        entry.actor,
        (entry.because, f"({evidence})" if evidence else ""),
    ]


def _since(text: str, now: datetime) -> datetime:
    try:
        return now - duration(text)
    except Unreadable:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--since {text!r} is neither a span nor a time; write 24h, 7d or 2026-12-01T08:00+01:00") from error
    return moment if moment.tzinfo is not None else moment.astimezone()


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 100000")
    return int(text)
