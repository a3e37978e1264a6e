"""A copy of a disk at one moment, as the cloud tells of it."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

OWN_TAG_PREFIX = "idle-reaper:"
"""Tags we write ourselves begin like this; we write no others, and a change of one of them is nobody else's touch."""


class SnapshotState(StrEnum):
    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"  # a word we do not know: it proves nothing


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    ``volume``: the disk it is of; ``size_gib``: that disk's size when it was taken. ``disk_gib``, ``disk_encrypted``: what that
    disk is now, None also where it is gone. None: not told, and what is not told proves nothing.
    """

    id: str
    volume: str
    state: SnapshotState
    size_gib: int | None = None
    encrypted: bool | None = None
    started_at: datetime | None = None
    tags: dict[str, str] = field(default_factory=dict)
    disk_gib: int | None = None
    disk_encrypted: bool | None = None
    disk_attached_at: datetime | None = None
