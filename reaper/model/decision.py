"""A decision about one resource, with every finding that led to it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from reaper.model.resource import ResourceId
from reaper.model.signal import State


class Action(StrEnum):
    """From gentle to harsh; the order below is the order of harshness."""

    KEEP = "keep"
    TAG = "tag"
    START = "start"
    SUSPEND = "suspend"
    HIBERNATE = "hibernate"
    STOP = "stop"
    STOP_AND_SNAPSHOT = "stop-and-snapshot"
    SNAPSHOT = "snapshot"
    SCALE_TO_ZERO = "scale-to-zero"
    SNAPSHOT_AND_DELETE = "snapshot-and-delete"
    TERMINATE = "terminate"
    DELETE = "delete"

    @property
    def harshness(self) -> int:
        return _ORDER[self]

    @property
    def takes_away(self) -> bool:
        """Whether it takes a machine or its data from somebody. Guards bind these."""
        return self not in (Action.KEEP, Action.TAG, Action.START)

    @property
    def stops(self) -> bool:
        """Whether all that is left of it is a stopped or suspended machine, which a start brings back."""
        return self in (Action.SUSPEND, Action.HIBERNATE, Action.STOP, Action.STOP_AND_SNAPSHOT)


_ORDER = {action: place for place, action in enumerate(Action)}


class FindingKind(StrEnum):
    NOMINATE = "nominate"
    PROTECT = "protect"  # never
    HOLD = "hold"  # not now
    NOTE = "note"  # worth telling; changes nothing


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One rule's answer. ``value`` and ``limit`` as shown to people; ``age`` of the evidence; ``change``: what would change
    the answer. ``exempts``: causes this objection does not bind (the guard says why). ``everything``: binds actions that
    take nothing away as well. ``error``: a rule's own traceback, for the log. ``not_before``: what a nomination is not due before.
    """

    rule: str
    kind: FindingKind
    because: str
    action: Action | None = None
    value: str | None = None
    limit: str | None = None
    age: timedelta | None = None
    change: str | None = None
    exempts: tuple[str, ...] = ()
    everything: bool = False
    error: str | None = None
    not_before: datetime | None = None


class Verdict(StrEnum):
    ACT = "act"  # would, if due
    WAIT = "wait"  # on hold
    KEEP = "keep"  # protected, or no cause


@dataclass(frozen=True, slots=True)
class Decision:
    """For one resource. It does not look at the mark. ``cause`` is the surviving (else the first) nomination's rule."""

    resource: ResourceId
    verdict: Verdict
    state: State
    action: Action = Action.KEEP
    cause: str | None = None
    policy: str | None = None
    because: str = ""
    findings: tuple[Finding, ...] = field(default=())

    @property
    def nomination(self) -> Finding | None:
        """That of ``cause``; None: nothing nominates."""
        return next((f for f in self.findings if f.kind is FindingKind.NOMINATE and f.rule == self.cause), None)

    @property
    def objections(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.kind in (FindingKind.PROTECT, FindingKind.HOLD))
