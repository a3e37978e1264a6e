"""How an attempt ended: by reading the machine, never by believing the call. Nothing here takes anything away."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from reaper import log
from reaper.decide.undo import left_stopped
from reaper.errors import CloudError, KeyUnusable, NoCapacity, NotFound, QuotaReached, Throttled, Unreachable
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Action
from reaper.model.kinds.instance import AT_REST, Hindrance, Instance, InstanceState
from reaper.model.kinds.snapshot import OWN_TAG_PREFIX
from reaper.model.plan import Attempt, Outcome
from reaper.model.resource import ResourceId
from reaper.ports import Clock, Cloud, Store
from reaper.service.gather import Gathering

_log = log.get(__name__)

READ_TO_CALL = timedelta(seconds=10)
"""From a fresh read to the call that relies on it, at most."""

STUCK_AFTER = timedelta(minutes=20)
"""A GPU machine takes minutes to stop; one that takes longer than this is a person's business."""

HIBERNATING = timedelta(minutes=60)
"""Writing hundreds of GiB of memory to a disk takes that long."""

SAVING = timedelta(hours=6)
"""Saving terabytes of local disks before a stop takes that long."""

UNSEEN_AFTER = timedelta(minutes=2)
"""After an intent whose call may never have left us, how long the machine must stay as it was to call it off."""

SURELY_OURS = timedelta(minutes=2)
"""After an intent of which it is not known whether its call arrived: a stop that shows later than that is not taken for ours."""

STOPPED_BY, OWED_START = f"{OWN_TAG_PREFIX}stopped-by", f"{OWN_TAG_PREFIX}owed-start"
"""Tags that mirror what we did and what we owe, so that a lost store is noticed and a person can tell."""

ACCEPTED = "accepted"
"""Where an audit entry says which verb a cloud took. Without it nobody can tell our stop from one that somebody made in the same minute."""

ENTRIES = 200
"""Of the record of one machine, far more than an attempt writes in minutes."""

ENDING = "ending"
"""Where an audit entry says that the call which ends a machine was about to be made."""

LATER_STEPS = (Action.STOP_AND_SNAPSHOT, Action.TERMINATE)
"""Actions that have only begun when the machine is stopped; `recipes` carries them on."""


class Settler:
    """Reads, closes and mirrors. ``clouds`` by name."""

    def __init__(self, store: Store, clouds: Mapping[str, Cloud], clock: Clock) -> None:
        self._store, self._clouds, self._clock = store, clouds, clock

    def settle(self, attempt: Attempt, gathering: Gathering | None = None) -> Attempt:
        """Read the machine and close the attempt if its end can be told; else it stays open and is asked again next cycle."""
        cloud = self._clouds.get(attempt.resource.cloud)
        if cloud is None:
            return attempt
        try:
            now_is = read(cloud, attempt.resource)
        except NotFound as error:
            if attempt.action is Action.TERMINATE:
                return attempt  # whether that was us is told by its snapshots, which `recipes` looks for
            return self.close(attempt, Outcome.FAILED, f"the machine is gone: {error}", None)
        except CloudError as error:
            _log.warning("outcome not readable yet", resource=str(attempt.resource), attempt=attempt.id, because=str(error))
            return attempt
        if gathering is not None:
            gathering.replace_instance(now_is, self._clock.now())
        outcome, detail = end_of(attempt, now_is, self._clock.now())
        stopped = outcome is Outcome.DONE or (outcome is None and attempt.action in LATER_STEPS and now_is.state is InstanceState.STOPPED)
        if stopped and attempt.action is not Action.START and self._may_be_anothers(attempt, now_is):
            because = f"it is {now_is.state} since {now_is.changed_at:%H:%M:%S %Z}, and whether by our call is not known"
            return self.close(attempt, Outcome.FAILED, because, None)  # not as we left it, as far as anybody knows
        if outcome is None or (outcome is Outcome.FAILED and self._on_its_way_out(attempt, now_is)):
            return attempt
        return self.close(attempt, outcome, detail, now_is)

    def on_record(self, attempt: Attempt, what: str) -> datetime | None:
        """When ``what`` was last written into the evidence of an entry of this attempt; None: never."""
        entries = self._store.audit(resource=attempt.resource, since=attempt.intent_at, limit=ENTRIES)
        return max((entry.at for entry in entries if entry.attempt == attempt.id and what in entry.evidence), default=None)

    def _on_its_way_out(self, attempt: Attempt, now_is: Instance) -> bool:
        """A machine that Google deletes reads as stopping once more, long after our stop of it was done."""
        asked = self.on_record(attempt, ENDING) if attempt.action is Action.TERMINATE and now_is.state is InstanceState.STOPPING else None
        return asked is not None and self._clock.now() - asked <= STUCK_AFTER

    def _may_be_anothers(self, attempt: Attempt, now_is: Instance) -> bool:
        """Where our call may never have arrived (a crash, an answer that was lost), somebody's own stop minutes later looks like ours."""
        late = now_is.changed_at is not None and now_is.changed_at - attempt.intent_at > SURELY_OURS
        return late and self.on_record(attempt, ACCEPTED) is None

    def settle_open(self, gathering: Gathering | None = None) -> tuple[Attempt, ...]:
        """Close what a crash or a slow machine left open, by reading. Never calls a verb."""
        return tuple(self.settle(attempt, gathering) for attempt in self._store.attempts(open_only=True))

    def refused(self, attempt: Attempt, error: CloudError) -> Attempt:
        """The cloud said no, and nothing changed."""
        return self.close(attempt, Outcome.REFUSED, str(error), None, hindrance_of(error))

    def close(self, attempt: Attempt, outcome: Outcome, detail: str, after: Instance | None, hindrance: Hindrance | None = None) -> Attempt:
        now = self._clock.now()
        if attempt.action is Action.START and after is not None and outcome is Outcome.FAILED:
            hindrance = hindrance or after.fell_back or (Hindrance.CLOUD if after.state in AT_REST else None)
        closed = replace(attempt, outcome=outcome, outcome_at=now, detail=detail, after=after, hindrance=hindrance)
        took = f"{(now - attempt.intent_at).total_seconds():.1f} s"
        entry = AuditEntry(
            now, AuditKind.OUTCOME, attempt.actor, detail, attempt.resource, attempt.action.value, attempt.id, {"outcome": outcome.value, "took": took}
        )
        self._store.end_attempt(closed, entry)
        _log.info("action finished", resource=str(attempt.resource), action=attempt.action.value, attempt=attempt.id, outcome=outcome.value, detail=detail)
        if left_stopped(closed):
            self.mirror(attempt.resource, {STOPPED_BY: attempt.id})
        elif attempt.action is Action.START and outcome is Outcome.DONE:
            self.mirror(attempt.resource, {STOPPED_BY: None, OWED_START: None})
        return closed

    def mirror(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        """Decoration: the store is the truth, and a tag that could not be written changes nothing."""
        cloud = self._clouds.get(resource.cloud)
        if cloud is None:
            return
        try:
            cloud.tag(resource, tags)
        except CloudError as error:
            _log.warning("state tag not written", resource=str(resource), because=str(error))


def read(cloud: Cloud, resource: ResourceId) -> Instance:
    """A fresh read. Raises CloudError, also where the answer is about another machine."""
    fresh = cloud.get(resource)
    if fresh.id != resource:
        raise CloudError(f"{resource}: the cloud answered about {fresh.id}; nothing is done on that")
    return fresh


def hindrance_of(error: CloudError) -> Hindrance | None:
    """Why a start that was refused may not be the next time; None: asking again is no use."""
    match error:
        case NoCapacity():
            return Hindrance.CAPACITY
        case QuotaReached():
            return Hindrance.QUOTA
        case KeyUnusable():
            return Hindrance.KEY
        case Throttled() | Unreachable():
            return Hindrance.CLOUD
        case _:
            return None


def end_of(attempt: Attempt, now_is: Instance, now: datetime) -> tuple[Outcome | None, str]:
    """How an attempt ended, by what the machine is now; None while that cannot be told yet, or while steps of it are left."""
    age = now - attempt.intent_at
    if attempt.action is Action.START:
        wanted, going = InstanceState.RUNNING, (InstanceState.PENDING,)
        if now_is.state is InstanceState.STOPPED and now_is.fell_back is not None and _since(now_is, attempt):
            met = f" (no {now_is.type} in {now_is.zone or now_is.id.place})" if now_is.fell_back is Hindrance.CAPACITY else ""
            return Outcome.FAILED, f"it began to start and fell back to stopped: {now_is.state_reason}{met}"
    else:
        wanted, going = InstanceState.STOPPED, (InstanceState.STOPPING,)
        if attempt.action is Action.SUSPEND:
            wanted, going = InstanceState.SUSPENDED, (InstanceState.SUSPENDING,)
    stuck = HIBERNATING if attempt.action in (Action.SUSPEND, Action.HIBERNATE) else STUCK_AFTER
    if attempt.action is not Action.START and attempt.before.stop_saves_local:
        stuck = SAVING
    if now_is.state is wanted:
        if now_is.changed_at is not None and now_is.changed_at - attempt.intent_at > stuck:
            # We were away: had our call arrived, it would have ended long before. An undo must not take this for ours.
            return Outcome.FAILED, f"it is {wanted} only since {now_is.changed_at:%Y-%m-%d %H:%M %Z}, by somebody else"
        if attempt.action in LATER_STEPS:
            return None, ""
        # EC2 stops a machine whose memory could not be kept all the same, and its reason alone says so
        kept = f", for the reason {now_is.state_reason}" if attempt.action is Action.HIBERNATE and now_is.state_reason is not None else ""
        return Outcome.DONE, f"{wanted}, read back from the cloud{kept}"
    if now_is.state in going:
        return (Outcome.FAILED, f"still {now_is.state} after {age}") if age > stuck else (None, "")
    if now_is.state in (InstanceState.TERMINATED, InstanceState.TERMINATING):
        return (None, "") if attempt.action is Action.TERMINATE else (Outcome.FAILED, f"the machine is {now_is.state}, by somebody else")
    if age > UNSEEN_AFTER:
        told = now_is.state_reason if now_is.state_reason != attempt.before.state_reason else None  # a stock-out that came late, say
        return Outcome.FAILED, f"still {now_is.state}: the call did not take effect" + (f" ({told})" if told else "")
    return None, ""


def _since(now_is: Instance, attempt: Attempt) -> bool:
    """
    Whether it changed since the attempt began, as far as the cloud tells, which is to a second. Of a machine that fell back EC2
    often tells no moment: the reason it had before may be what a read that lags behind still shows.
    """
    if now_is.changed_at is None:
        return now_is.state_reason != attempt.before.state_reason
    return now_is.changed_at >= attempt.intent_at - timedelta(seconds=2)
