"""What will happen, what would but may not and why, and how each try ended."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from reaper.model.decision import Action
from reaper.model.kinds.instance import Hindrance, Instance
from reaper.model.policy import Mode
from reaper.model.resource import ResourceId


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """One action that nothing withholds. ``usd_per_hour``: what it saves; None: not known."""

    resource: ResourceId
    name: str
    action: Action
    cause: str
    policy: str
    because: str
    gang: str | None = None
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Withheld:
    """One that may not happen, and what withholds it: "mode", "scope", "budget", "breaker", "gang", "configuration", "brake"."""

    resource: ResourceId
    name: str
    action: Action
    cause: str
    policy: str
    by: str
    because: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole cycle's plan. How it was made (mode, digest) is for display and for rule 14 only."""

    id: str
    made_at: datetime
    mode: Mode
    configuration_digest: str
    actions: tuple[PlannedAction, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    notes: tuple[str, ...] = ()


class Outcome(StrEnum):
    DONE = "done"  # verified by reading the resource
    REFUSED = "refused"  # the cloud said no: nothing changed
    FAILED = "failed"  # tried, and the resource is not in the wanted state
    ABANDONED = "abandoned"  # an intent without a call, closed after a crash by reading


@dataclass(frozen=True, slots=True)
class Attempt:
    """
    One try at one action. Written as an intent before the call; ``outcome`` is None while it is open.

    ``before``: the machine as it was, which is what an undo compares with. ``after``: as it was
    read back at the end. ``hindrance``: of a start that did not happen, why the next may. ``usd_per_hour``: what was debited. ``epoch`` and ``holder``: the lease it was made under.
    ``owed_by``: of a stop, the schedule that wants the machine back, so that a start is owed when its hours begin; None: none.
    ``at_work``: of a stop by a schedule that says in so many words that work is stopped.
    """

    id: str
    resource: ResourceId
    action: Action
    cause: str
    policy: str
    because: str
    intent_at: datetime
    before: Instance
    actor: str = "reaper"
    plan: str | None = None
    usd_per_hour: float | None = None
    epoch: int = 0
    holder: str = ""
    outcome: Outcome | None = None
    outcome_at: datetime | None = None
    detail: str | None = None
    after: Instance | None = None
    hindrance: Hindrance | None = None
    owed_by: str | None = None
    at_work: bool = False


@dataclass(frozen=True, slots=True)
class Debit:
    """What an attempt took from the budgets. ``usd_per_hour``: None is not known."""

    at: datetime
    resource: ResourceId
    action: Action
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's `apply PLAN`, filed for whoever leads."""

    id: str
    plan: str
    who: str
    at: datetime
    resources: tuple[ResourceId, ...] = field(default=())
    done_at: datetime | None = None
