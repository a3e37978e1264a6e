"""The append-only record: enough to explain and to undo."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from reaper.model.resource import ResourceId


class AuditKind(StrEnum):
    NOMINATED = "nominated"
    WARNED = "warned"
    PAUSED = "paused"
    RESUMED = "resumed"
    DUE = "due"
    CLEARED = "cleared"
    INTENT = "intent"
    ACCEPTED = "accepted"
    OUTCOME = "outcome"
    WITHHELD = "withheld"
    SNOOZED = "snoozed"
    TOKEN = "token"
    APPROVED = "approved"
    DISCONTINUITY = "discontinuity"
    BREAKER = "breaker"
    CONFIGURATION = "configuration"
    VOICE = "voice"
    LOST = "work-lost"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """
    ``seq`` grows by one an entry and is given by the store (0 before). ``actor``: "reaper" or a person.
    ``attempt``: the attempt an intent, outcome or undo speaks of. ``evidence``: figures as shown to people.
    """

    at: datetime
    kind: AuditKind
    actor: str
    because: str
    resource: ResourceId | None = None
    action: str | None = None
    attempt: str | None = None
    evidence: dict[str, str] = field(default_factory=dict)
    seq: int = 0
