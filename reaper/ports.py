"""
What the services need from the world, as interfaces. Adapters implement them; nothing here is implemented.

Each says what it promises and what it does not.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import EllipsisType
from typing import Protocol

from reaper.model.audit import AuditEntry
from reaper.model.decision import Action
from reaper.model.kinds.disk import Disk, KeptDisk, Leftover
from reaper.model.kinds.instance import Instance, Protections
from reaper.model.kinds.snapshot import Snapshot
from reaper.model.mark import Mark
from reaper.model.plan import Approval, Attempt, Debit, Plan
from reaper.model.policy import Configuration
from reaper.model.resource import Place, ResourceId
from reaper.model.signal import Observation, Voice
from reaper.model.snooze import Snooze


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds; never steps."""
        ...


# --- clouds -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listed:
    """
    One place's answer. ``failed``: why it could not be read; ``instances`` is then empty and means nothing. ``skipped``: why
    it is left out on purpose (a region that is switched off); where machines were known there, that is a failure all the same.
    """

    place: Place
    instances: tuple[Instance, ...] = ()
    failed: str | None = None
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class Shelf:
    """
    One place's disks, and what else lies about there. ``failed``: why it could not be read; ``disks`` is then empty and means nothing.
    ``unread``: what of the rest could not be read, a sentence each that begins with its kind ("snapshots: not allowed"); the disks are whole all the same.
    """

    place: Place
    disks: tuple[Disk, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    failed: str | None = None
    unread: tuple[str, ...] = ()


class Disks(Protocol):
    """The disks of one cloud, all its places: reads. Errors are reaper.errors.CloudError and its kinds."""

    name: str

    def shelves(self) -> tuple[Shelf, ...]:
        """
        Every place, the failed ones with their reason; all pages, or failed. Bounded in time. Of leftovers: snapshots of this account whose disk
        is gone, addresses tied to nothing, load balancers without a living target. Raises CloudError only when not even the places are known.
        """
        ...


class Cloud(Protocol):
    """
    One cloud, all its places. Reads may be retried inside; a verb is one call, never retried, and an answer that was
    lost raises AnswerLost. Errors are reaper.errors.CloudError and its kinds.
    """

    name: str

    def list(self) -> tuple[Listed, ...]:
        """Every place, the failed ones with their reason. Raises CloudError only when not even the places are known."""
        ...

    def get(self, resource: ResourceId) -> Instance:
        """A fresh read of one. Raises NotFound when the cloud says it is not there."""
        ...

    def protections(self, resource: ResourceId) -> Protections:
        """What costs a call of its own. Never raises CloudError: what cannot be read is None inside."""
        ...

    def stop(self, resource: ResourceId) -> None:
        """One call. Returning means accepted, not stopped."""
        ...

    def start(self, resource: ResourceId) -> None:
        """One call. Returning means accepted, not running."""
        ...

    def hibernate(self, resource: ResourceId) -> None:
        """One call. Raises Unsupported where the machine cannot; it is then not stopped instead."""
        ...

    def terminate(self, resource: ResourceId) -> None:
        """One call. Returning means accepted. The machine's disks may go with it."""
        ...

    def snapshot(self, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        """One call: the id of a new snapshot of one of the machine's disks, which carries ``tags`` from its beginning. Not complete yet."""
        ...

    def snapshots(self, resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
        """A read: the snapshots whose tag ``idle-reaper:attempt`` is ``key``, oldest first, each with what its disk is now."""
        ...

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        """Put our own tags on a machine, or take them off (None). At most two calls. Raises Refused for a key that is not ours."""
        ...

    def shelves(self) -> tuple[Shelf, ...]:
        """As in Disks."""
        ...

    def skew(self, now: datetime) -> timedelta | None:
        """Our clock minus the cloud's, by the Date header of its newest answer; None: no answer yet."""
        ...


@dataclass(frozen=True, slots=True)
class Probed:
    """
    One permission tried in one account, without doing anything. ``allowed`` None: not tried or not known, for the reason in
    ``because``. ``optional``: a denial of it does no harm.
    """

    account: str
    permission: str
    document: str
    allowed: bool | None
    because: str
    optional: bool = False


class Prober(Protocol):
    """Asks a cloud what we may do. It can do none of it: what is neither a read nor a dry run is refused before it is sent."""

    name: str

    def probe(self, configuration: Configuration) -> tuple[Probed, ...]:
        """Never raises CloudError: what cannot be tried says why."""
        ...


# --- people -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """What people are told. ``event``: warned, cleared, due, done, failed, late, breaker, work-lost, hours-end. ``due_at``: the earliest moment."""

    event: str
    resource: ResourceId | None
    name: str
    action: str
    because: str
    at: datetime
    policy: str | None = None
    owner: str | None = None
    due_at: datetime | None = None
    keep_it: str | None = None
    people: tuple[str, ...] = ()
    """Who is on the machine, a line each. They may care beside its owner."""
    notes: tuple[str, ...] = ()
    """What to know before it goes: how it may come back, what a stop does not save."""


class Notifier(Protocol):
    name: str

    def send(self, message: Message) -> None:
        """Returning means the channel accepted it. Raises NotDelivered; bounded in time (10 s)."""
        ...


# --- state ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Token:
    """A host's token. ``resource`` None: a shared one, an unverified voice. The secret itself is not kept."""

    id: str
    digest: bytes
    created_at: datetime
    resource: ResourceId | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KeptListing:
    """A place's newest good listing. ``failed``: why the newest try failed (the listing is then older than it)."""

    place: Place
    instances: tuple[Instance, ...]
    listed_at: datetime
    failed: str | None = None
    empty_once: bool = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """What we saw of one machine with our own eyes. ``running_since``: our first sight of this run of it."""

    resource: ResourceId
    first_seen_at: datetime
    last_seen_at: datetime
    running_since: datetime | None = None
    launched_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KeptShelf:
    """Where disks are looked for. ``listed_at``: of the newest good listing; ``failed``: why the newest try failed; ``unread`` as in Shelf."""

    place: Place
    listed_at: datetime
    failed: str | None = None
    unread: tuple[str, ...] = ()
    empty_once: bool = False


@dataclass(frozen=True, slots=True)
class SeenProtection:
    """
    A protection as last seen on a machine. ``ends_at`` None: open end. ``vanished_at``: the cycle that noticed it gone
    before its own end; it holds for a day from then.
    """

    resource: ResourceId
    name: str
    first_seen_at: datetime
    last_seen_at: datetime
    ends_at: datetime | None = None
    vanished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Leadership. The epoch grows with every change of holder; holder is random per process."""

    epoch: int
    holder: str
    expires_at: datetime


class Store(Protocol):
    """
    The state. Every method is one transaction. Raises StoreError when it could not be read or written; a read never
    answers with a default instead.
    """

    # reports
    def add_observation(self, observation: Observation, voice: Voice, after: Voice | None | EllipsisType = ...) -> bool:
        """
        Keep a window and who spoke. False: a duplicate by (resource, boot_id, seq); nothing was changed. ``after``: the voice by
        which this was judged; raises HeardElsewhere, and writes nothing, when it stands no more. Left out: whatever stands.
        """
        ...

    def before_and_after(self, resource: ResourceId, boot_id: str, seq: int) -> tuple[Observation | None, Observation | None]:
        """Of one boot's kept windows the last up to ``seq`` (that one included), and the first after it."""
        ...

    def observations(self, since: datetime, resource: ResourceId | None = None) -> Iterable[Observation]:
        """Windows that ended at or after ``since``, by resource, then by (boot's first receipt, seq) in order."""
        ...

    def windows_after(self, points: Sequence[tuple[ResourceId, str, int]], limit: int) -> dict[ResourceId, tuple[Observation, ...]]:
        """For each (resource, boot, seq) the windows of that boot after that seq, in order, at most ``limit``; left out where there is none."""
        ...

    def distrust(self, resource: ResourceId, since: datetime) -> None:
        """Turn every kept window of the resource that ended after ``since`` into an unverified one."""
        ...

    def voices(self) -> dict[ResourceId, Voice]: ...
    def voice(self, resource: ResourceId) -> Voice | None: ...
    def forget_observations(self, before: datetime) -> int:
        """Drop windows that ended before; the number dropped."""
        ...

    # tokens
    def add_token(self, token: Token, entry: AuditEntry) -> None: ...
    def token(self, id: str) -> Token | None: ...
    def tokens(self) -> tuple[Token, ...]: ...
    def revoke_token(self, id: str, at: datetime, entry: AuditEntry) -> bool: ...

    # inventory
    def save_listings(self, listings: Sequence[KeptListing], ledgers: Sequence[Ledger], gone: Sequence[Place] = ()) -> None:
        """Keep these, forget the listings of ``gone``; what is not named stays."""
        ...

    def listings(self) -> dict[Place, KeptListing]: ...
    def ledgers(self) -> dict[ResourceId, Ledger]: ...
    def seen_protections(self) -> tuple[SeenProtection, ...]: ...
    def save_seen_protections(self, changed: Sequence[SeenProtection], gone: Sequence[SeenProtection]) -> None: ...

    # disks
    def save_shelves(
        self, shelves: Sequence[KeptShelf], disks: Sequence[KeptDisk], leftovers: Sequence[Leftover], gone: Collection[Place | ResourceId] = ()
    ) -> None:
        """Keep these, forget what is ``gone`` (places, disks, leftovers); what is not named stays."""
        ...

    def shelves(self) -> dict[Place, KeptShelf]: ...
    def disks(self) -> dict[ResourceId, KeptDisk]: ...
    def leftovers(self) -> dict[ResourceId, Leftover]: ...

    # marks, snoozes, plans
    def marks(self) -> dict[tuple[ResourceId, Action], Mark]: ...
    def save_marks(self, changed: Sequence[Mark], cleared: Sequence[Mark], entries: Sequence[AuditEntry], lease: Lease | None = None) -> None:
        """``lease``: raises LeaseLost, and writes nothing, when another has led since; run out but not taken over is still ours."""
        ...

    def add_snooze(self, snooze: Snooze, entry: AuditEntry) -> None: ...
    def put_snooze(self, snooze: Snooze, entry: AuditEntry) -> None:
        """As `add_snooze`, and takes the place of the one with the same id."""
        ...

    def end_snooze(self, id: str, entry: AuditEntry) -> bool:
        """Forget it. False, and nothing is recorded: it was not there (any more)."""
        ...

    def snooze(self, id: str) -> Snooze | None: ...
    def snoozes(self, active_at: datetime) -> tuple[Snooze, ...]: ...
    def save_plan(self, plan: Plan) -> None:
        """Keeps it; plans older than the newest 200 are dropped."""
        ...

    def plan(self, id: str | None = None) -> Plan | None:
        """By id; the newest when no id is given."""
        ...

    def add_approval(self, approval: Approval, entry: AuditEntry) -> None: ...
    def approvals(self) -> tuple[Approval, ...]:
        """Those not done yet, oldest first."""
        ...

    def finish_approval(self, id: str, at: datetime) -> None: ...

    # acting
    def acquire_lease(self, holder: str, now: datetime, ttl: timedelta) -> Lease | None:
        """Take or renew it. None: another holds it and it has not run out."""
        ...

    def release_lease(self, lease: Lease) -> None: ...
    def held_lease(self) -> Lease | None:
        """As it stands, run out or not; None: nobody holds it."""
        ...

    def begin_attempt(
        self, attempt: Attempt, lease: Lease, now: datetime, entry: AuditEntry, admit: Callable[[tuple[Debit, ...]], str | None]
    ) -> None:
        """
        In one transaction: check the lease (epoch, holder, not run out), hand ``admit`` the debits of the last 25 h of
        the same verb, write intent and audit entry. Raises LeaseLost, or BudgetSpent with what ``admit`` answered; then nothing is written.
        """
        ...

    def end_attempt(self, attempt: Attempt, entry: AuditEntry) -> None: ...
    def attempts(self, open_only: bool = False, resource: ResourceId | None = None, limit: int = 1000) -> tuple[Attempt, ...]:
        """Newest first."""
        ...

    def attempt(self, id: str) -> Attempt | None: ...
    def debits(self, action: Action, since: datetime) -> tuple[Debit, ...]: ...

    # audit and facts about ourselves
    def append_audit(self, *entries: AuditEntry) -> None: ...
    def audit(
        self, resource: ResourceId | None = None, since: datetime | None = None, limit: int = 200, after_seq: int = 0
    ) -> tuple[AuditEntry, ...]:
        """Oldest first; of more than ``limit`` the newest ``limit``."""
        ...

    def fact(self, key: str) -> str | None: ...
    def edit_fact(self, key: str, edit: Callable[[str | None], str | None]) -> None:
        """``edit`` gets what stands and answers what shall (None: leave it), in one transaction. It must not call the store."""
        ...

    def set_facts(self, facts: dict[str, str | None]) -> None:
        """None removes one."""
        ...

    # the same database as before
    def lost_track(self) -> str | None:
        """
        Why this is not the database that this process wrote to or that the last cycle ran on (a backup was restored, a standby took
        over); None: nothing speaks against it. `begin_attempt` asks as well, and raises LeaseLost then.
        """
        ...

    def keep_track(self) -> None:
        """From here on it counts as ours as it stands."""
        ...

    def skew(self, now: datetime) -> timedelta | None:
        """Our clock minus the database's; None: it has no clock of its own."""
        ...

    def close(self) -> None: ...


class Brakes(Protocol):
    """What stops everything, read before every call."""

    def engaged(self) -> str | None:
        """Why nothing may be taken away now; None: nothing in the way. An unreadable brake is engaged."""
        ...
