"""How far a candidate is on its way to an action: nominated, warned, due."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from reaper.model.decision import Action
from reaper.model.resource import ResourceId


class Stage(StrEnum):
    NOMINATED = "nominated"  # the warning has not been accepted by a channel yet
    WARNED = "warned"  # accepted; the wait is counted
    DUE = "due"  # the wait was served; the last look decides


@dataclass(frozen=True, slots=True)
class Mark:
    """
    One per resource and action.

    ``waited``: what counts of the wait so far, in observed cycles outside quiet hours. ``counted_at``: the cycle up to
    which it was counted. ``told_at``: when the agent could first learn that it is due; the last look's window begins
    after it. ``policy_digest``: the terms it was nominated under; a change clears it. ``paused``: why it stands still.
    ``not_before``: a moment before which it is not due, however long it was waited.
    """

    resource: ResourceId
    action: Action
    cause: str
    policy: str
    policy_digest: str
    stage: Stage
    nominated_at: datetime
    counted_at: datetime
    waited: timedelta = timedelta(0)
    warned_at: datetime | None = None
    warned_via: str | None = None
    due_at: datetime | None = None
    paused: str | None = None
    because: str = ""
    not_before: datetime | None = None


class MarkChange(StrEnum):
    """What became of a mark in one cycle. Each is announced: an unmark is as loud as a mark."""

    NOMINATED = "nominated"
    WARNED = "warned"
    PAUSED = "paused"
    RESUMED = "resumed"
    DUE = "due"
    CLEARED = "cleared"
    DONE = "done"  # the action was carried out


@dataclass(frozen=True, slots=True)
class MarkEvent:
    mark: Mark
    change: MarkChange
    because: str
