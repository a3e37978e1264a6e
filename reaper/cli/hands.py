"""What `apply` and `undo` share: who asks, whether they mean it, and filing it for the reaper that leads."""

import argparse
import getpass
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from reaper.errors import Refused, UsageError
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.plan import Approval
from reaper.model.policy import Configuration, Mode
from reaper.model.resource import ResourceId
from reaper.ports import Lease, Store

if TYPE_CHECKING:
    from reaper.wiring import Parts


def person() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "operator"


def require_enforce(configuration: Configuration, verb: str) -> None:
    """Raises Refused where this configuration lets nobody act, naming what to change."""
    if configuration.mode is not Mode.ENFORCE:
        remedy = "write a configuration" if configuration.source == "built in" else f'set mode = "enforce" in {configuration.source}'
        raise Refused(f"mode is observe, so nothing is changed; {remedy}, with a [scope] whose verbs name {verb} and a policy that says enforce")
    if not configuration.scope.given or verb not in configuration.scope.verbs:
        raise Refused(f'[scope] verbs of {configuration.source} do not name {verb}; add verbs = ["{verb}"] to let it')


def confirmed(args: argparse.Namespace, question: str) -> bool:
    """Raises UsageError where there is nobody to ask."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to confirm this; say --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@contextmanager
def leading(parts: "Parts") -> Iterator[Lease | None]:
    """The lease for as long as this lasts; None: another reaper leads."""
    lease = parts.leader.renew()
    try:
        yield lease
    finally:
        parts.leader.release()


def file(store: Store, plan: str, who: str, resources: Sequence[ResourceId], because: str, now: datetime) -> Approval:
    """For the reaper that leads; it looks at the end of each cycle."""
    made = Approval(f"ok-{uuid4().hex[:10]}", plan, who, now, tuple(resources))
    one = resources[0] if len(resources) == 1 else None
    store.add_approval(made, AuditEntry(now, AuditKind.APPROVED, who, because, one, evidence={"plan": plan, "approval": made.id}))
    return made
