"""
`reaper token`: with what the agents speak.

A host gets a token of its own; a shared one is for a first look, since its voice is never enough to stop a machine.
"""

import argparse
import getpass
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reaper.clock import SystemClock
from reaper.errors import UsageError
from reaper.model.resource import ResourceId
from reaper.ports import Store, Token
from reaper.service import tokens

NAME = "token"
HELP = "issue, list and revoke the tokens with which agents report"
EXAMPLES = """\
examples:
  reaper token issue aws:123456789012:eu-west-1:instance:i-0abc    one host's own; printed once, kept as a digest
  reaper token issue --shared                                      for many hosts; an unverified voice, stops nothing
  reaper token list                                                ids, for whom, since when; never the tokens
  reaper token revoke 3f2a9c01d4e5b687                             works within ten seconds

exit codes: 0 done, 1 failed, 2 usage, 3 nothing to revoke
"""

DONE, NOTHING = 0, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    issue = verbs.add_parser("issue", help="make a token and print it, once")
    issue.add_argument("resource", nargs="?", metavar="RESOURCE", help="the machine's id, such as aws:123456789012:eu-west-1:instance:i-0abc")
    issue.add_argument("--shared", action="store_true", help="for any host; what it says is not verified and never makes one idle")
    listing = verbs.add_parser("list", help="which tokens there are")
    revoke = verbs.add_parser("revoke", help="end a token")
    revoke.add_argument("id", metavar="ID", help="the public part, from `reaper token list`")
    for verb in (issue, listing, revoke):
        verb.add_argument("--json", action="store_true", help="one JSON object on the last line, for machines")


def run(args: argparse.Namespace) -> int:
    """Raises UsageError, StoreError."""
    with _opened(Path(args.state), args.store, create=args.verb == "issue") as store:
        match args.verb:
            case "issue":
                return _issue(args, store)
            case "list":
                return _list(args, store)
            case _:
                return _revoke(args, store)


@contextmanager
def _opened(state: Path, url: str | None, create: bool) -> Iterator[Store]:
    from reaper.wiring import open_state  # loads the database library, which --help does not need

    store = open_state(state, url, create=create)
    try:
        yield store
    finally:
        store.close()


def _issue(args: argparse.Namespace, store: Store) -> int:
    if args.shared == (args.resource is not None):
        raise UsageError("name the machine the token is for, or ask for --shared, and not both: reaper token issue RESOURCE")
    try:
        resource = ResourceId.parse(args.resource) if args.resource is not None else None
    except ValueError as error:
        raise UsageError(str(error)) from error
    text = tokens.issue(store, resource, SystemClock().now(), _actor())
    id = text.split("_")[1]
    if args.json:
        print(json.dumps({"token": text, "id": id, "resource": str(resource) if resource is not None else None}))
    else:
        print(f"Token {id} for {resource if resource is not None else 'any host (shared: its voice is never verified)'}.")
        print("Put it into the agent's token_file; it is not shown again:")
        print(text)
    return DONE


def _list(args: argparse.Namespace, store: Store) -> int:
    kept = store.tokens()
    if args.json:
        print(json.dumps({"tokens": [_row(token) for token in kept]}))
        return DONE
    if not kept:
        print("No tokens. Make one with: reaper token issue RESOURCE")
        return DONE
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "machine", "issued", "revoked", box=None, pad_edge=False)
    for token in kept:
        row = _row(token)
        table.add_row(row["id"], row["resource"] or "any (shared)", row["created_at"], row["revoked_at"] or "")
    Console().print(table)
    return DONE


def _revoke(args: argparse.Namespace, store: Store) -> int:
    revoked = tokens.revoke(store, args.id, SystemClock().now(), _actor())
    if args.json:
        print(json.dumps({"id": args.id, "revoked": revoked}))
    elif revoked:
        print(f"Token {args.id} is revoked; the door refuses it within ten seconds.")
    else:
        print(f"No token {args.id} that is not revoked already; see: reaper token list")
    return DONE if revoked else NOTHING


def _row(token: Token) -> dict[str, str | None]:
    return {
        "id": token.id,
        "resource": str(token.resource) if token.resource is not None else None,
        "created_at": token.created_at.isoformat(timespec="seconds"),
        "revoked_at": token.revoked_at.isoformat(timespec="seconds") if token.revoked_at is not None else None,
    }


def _actor() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "operator"
