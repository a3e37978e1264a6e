"""
The later steps of actions that have more than one: snapshot every disk of a machine that we stopped, verify, and only where
that was asked for, end it.

Each step reads what is there first, so it can be repeated after a crash: snapshots are found by the attempt in their tags.
Before each call: mode, scope, kill switch, lease, and that nobody touched the machine. Before ending it also a configuration in
force, no open breaker, what people said up to now, a read that is seconds old, and every guard that says whose it is and what
protects it. The attempt was debited once, when it began.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reaper import log
from reaper.decide import budget as budgets
from reaper.decide.breaker import Jump
from reaper.decide.facts import Facts
from reaper.decide.findings import span_text
from reaper.decide.guards import claimed, eligible, owned, policies, protected, snoozed, stop_protected, termination
from reaper.decide.planner import verb_missing
from reaper.decide.undo import foreign_tags
from reaper.errors import AnswerLost, CloudError, Denied, NotFound, TooSoon, Unreachable, Unsupported
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Action
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.kinds.snapshot import OWN_TAG_PREFIX, Snapshot, SnapshotState
from reaper.model.plan import Attempt, Outcome
from reaper.model.policy import Mode
from reaper.ports import Brakes, Clock, Cloud, Lease, Store
from reaper.service.gather import Gathering, read_known
from reaper.service.settle import ACCEPTED, ENDING, ENTRIES, LATER_STEPS, READ_TO_CALL, UNSEEN_AFTER, Settler, read

_log = log.get(__name__)

WITHIN = timedelta(hours=24)
"""A first snapshot of a large disk takes hours; one that takes longer than this is a person's business."""

AT_ONCE = 4
"""Snapshots begun in one cycle, over all machines: the cloud limits how many are on their way."""

TRIES = 3
"""Snapshots of one disk that may fail before the attempt does."""

BEFORE_ENDING = (
    eligible.ineligible, claimed.claimed_by_another, protected.protected, policies.two_policies, snoozed.snoozed, owned.managed_member,
    stop_protected.stop_protected, termination.termination_protected,
)  # fmt: skip
"""Guards that hold for a stopped machine as well. The others ask what runs on it, and nothing does."""


_NOT_SENT = "not-begun"
"""In the record of a snapshot that the cloud refused, or that never reached it: nothing of it will appear."""

class NotNow(Exception):
    """Why a step waits for a later cycle."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a cycle's later steps are bound by. ``refused``: why the newest configuration is not in force, which lets nothing be taken away."""

    gathering: Gathering
    lease: Lease
    jumps: Sequence[Jump] = ()
    refused: str | None = None


class Recipes:
    def __init__(self, store: Store, clouds: Mapping[str, Cloud], clock: Clock, brakes: Brakes, settler: Settler) -> None:
        self._store, self._clouds, self._clock, self._brakes, self._settler = store, clouds, clock, brakes, settler
        self._left = AT_ONCE  # snapshots that may be begun in this cycle

    def carry_on(self, terms: Terms) -> tuple[Attempt, ...]:
        """Each open attempt a step further. One that fails changes nothing for the others. The attempts that were looked at."""
        found = []
        self._left = AT_ONCE
        for attempt in self._store.attempts(open_only=True):
            if attempt.action not in LATER_STEPS:
                continue
            try:
                attempt = self._step(attempt, terms)
            except NotNow as why:
                _log.info("step waits", resource=str(attempt.resource), action=attempt.action.value, attempt=attempt.id, because=str(why))
                attempt = self._give_up_late(attempt, str(why), terms)
            except CloudError as error:
                _log.warning("step not carried out", resource=str(attempt.resource), attempt=attempt.id, because=str(error))
                if isinstance(error, Denied | Unsupported):
                    attempt = self._settler.close(attempt, Outcome.REFUSED, str(error), terms.gathering.instance(attempt.resource))
                else:
                    attempt = self._give_up_late(attempt, str(error), terms)
            found.append(attempt)
        return tuple(found)

    def _step(self, attempt: Attempt, terms: Terms) -> Attempt:
        cloud = self._clouds.get(attempt.resource.cloud)
        if cloud is None:
            raise NotNow(f"no cloud {attempt.resource.cloud} is configured")
        try:
            fresh = read(cloud, attempt.resource)
        except NotFound:
            return self._ended(attempt, cloud, None)
        terms.gathering.replace_instance(fresh, self._clock.now())
        if fresh.state in (InstanceState.TERMINATING, InstanceState.TERMINATED):
            return self._ended(attempt, cloud, fresh)
        if fresh.state is not InstanceState.STOPPED:
            raise NotNow(f"the machine is {fresh.state}")
        touched = _touched(attempt, fresh)
        if touched is not None:
            return self._settler.close(attempt, Outcome.FAILED, touched, fresh)
        if not fresh.volumes:
            return self._settler.close(attempt, Outcome.FAILED, "stopped, and it has no disk that could be snapshotted", fresh)
        snapshots = cloud.snapshots(attempt.resource, attempt.id)
        missing = [volume for volume in fresh.volumes if _newest(snapshots, volume) is None]
        if missing:
            return self._begin(attempt, cloud, terms, missing, snapshots)
        verified = _verified(attempt, fresh, snapshots)
        if verified is None:
            raise NotNow("its snapshots are not complete yet")
        for one in verified:
            wrong = _wrong(one)
            if wrong is not None:
                return self._settler.close(attempt, Outcome.FAILED, f"stopped, and its snapshot proves nothing: {wrong}", fresh)
        if attempt.action is Action.STOP_AND_SNAPSHOT:
            return self._settler.close(attempt, Outcome.DONE, f"stopped, and snapshotted: {_names(verified)}", fresh)
        return self._end(attempt, cloud, terms, verified)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def _begin(self, attempt: Attempt, cloud: Cloud, terms: Terms, missing: Sequence[str], snapshots: Sequence[Snapshot]) -> Attempt:
        begun = 0
        unseen = self._sent_lately(attempt, snapshots) & set(missing)
        for volume in missing:
            if volume in unseen:
                continue
            if sum(one.volume == volume for one in snapshots) >= TRIES:
                because = f"stopped, but snapshots of {volume} failed {TRIES} times"
                return self._settler.close(attempt, Outcome.FAILED, because, terms.gathering.instance(attempt.resource))
            if self._left <= 0:
                break
            self._permitted(attempt, terms)
            self._record(attempt, AuditKind.INTENT, f"snapshot {volume}", {"volume": volume})
            try:
                id = cloud.snapshot(attempt.resource, volume, self._tags(attempt, volume))
            except (TooSoon, Unreachable) as error:
                # read again in the next cycle, a minute from now: the cloud asks for a quarter of that
                self._record(attempt, AuditKind.OUTCOME, f"snapshot {volume}: {error}", {"volume": volume, _NOT_SENT: "yes"})
                raise NotNow(str(error)) from error
            except AnswerLost as error:
                self._record(attempt, AuditKind.OUTCOME, f"snapshot {volume}: {error}", {"volume": volume})
                raise NotNow(str(error)) from error
            begun += 1
            self._left -= 1
            self._record(attempt, AuditKind.OUTCOME, f"snapshot {id} of {volume} begun", {"volume": volume, "snapshot": id})
        if unseen and not begun:
            raise NotNow(f"a snapshot of {', '.join(sorted(unseen))} was asked for a moment ago and is not to be seen yet")
        return attempt

    def _sent_lately(self, attempt: Attempt, snapshots: Sequence[Snapshot]) -> set[str]:
        """
        Disks of which a snapshot was asked for within the last minutes and is not listed: a listing may lag behind what was
        done, and a second snapshot of the same would cost and stay. From the record, so that a crash in between forgets none.
        """
        begun_after = self._clock.now() - UNSEEN_AFTER
        sent: dict[str, datetime] = {}
        for entry in reversed(self._store.audit(resource=attempt.resource, limit=ENTRIES)):
            volume = entry.evidence.get("volume")
            if entry.attempt != attempt.id or volume is None:
                continue
            if entry.kind is AuditKind.INTENT and entry.at > begun_after:
                sent[volume] = entry.at
            elif _NOT_SENT in entry.evidence:
                sent.pop(volume, None)
        seen = {one.volume for one in snapshots if one.started_at is None or one.started_at >= sent.get(one.volume, one.started_at) - timedelta(seconds=2)}
        return set(sent) - seen

    def _tags(self, attempt: Attempt, volume: str) -> dict[str, str]:
        """What a person needs to find and restore it."""
        machine = attempt.before
        return {
            "Name": f"{machine.title} {volume} before {attempt.action}"[:256],
            f"{OWN_TAG_PREFIX}attempt": attempt.id,
            f"{OWN_TAG_PREFIX}machine": str(attempt.resource),
            f"{OWN_TAG_PREFIX}disk": volume,
            f"{OWN_TAG_PREFIX}taken-at": self._clock.now().isoformat(timespec="seconds"),
            f"{OWN_TAG_PREFIX}because": attempt.because[:256],
        }

    # --- ending -------------------------------------------------------------------------------------------------------

    def _end(self, attempt: Attempt, cloud: Cloud, terms: Terms, verified: Sequence[Snapshot]) -> Attempt:
        sent = self._settler.on_record(attempt, ENDING)
        if sent is not None and self._clock.now() - sent < UNSEEN_AFTER:
            raise NotNow("we asked for its end a moment ago")  # a read may lag behind what was accepted
        if self._settler.on_record(attempt, ACCEPTED) is None:
            because = "stopped and snapshotted, and not ended: whether it was our call that stopped it is not known"
            return self._settler.close(attempt, Outcome.FAILED, because, terms.gathering.instance(attempt.resource))
        protections = cloud.protections(attempt.resource)
        kept = _verified(attempt, attempt.before, cloud.snapshots(attempt.resource, attempt.id))  # reading those may have taken long
        if kept is None or any(_wrong(one) for one in kept):
            raise NotNow("its snapshots were changed a moment ago")  # the next cycle says what that was
        at, ran_s = self._clock.now(), self._clock.monotonic()
        fresh = read(cloud, attempt.resource)  # once more: whoever started it since the snapshots were looked for works on it
        terms.gathering.replace_instance(fresh, at)
        if fresh.state is not InstanceState.STOPPED or _touched(attempt, fresh) is not None:
            raise NotNow("somebody touched it a moment ago")  # the next cycle says what that was
        self._permitted(attempt, terms)
        self._may_end(attempt, terms)
        terms.gathering.known = read_known(self._store, self._clock.now())
        facts = terms.gathering.facts(attempt.resource, self._clock.now(), protections)
        why = self._guarded(facts, self._clock.now())
        if why is not None:
            return self._settler.close(attempt, Outcome.FAILED, f"stopped and snapshotted, and not ended: {why}", fresh)
        if facts.policy is None or facts.policy.name != attempt.policy or facts.policy.action != "terminate" or facts.policy.mode is not Mode.ENFORCE:
            return self._settler.close(attempt, Outcome.FAILED, "stopped and snapshotted, and not ended: its policy does not say so any more", fresh)
        self._record(attempt, AuditKind.INTENT, f"end it; its disks are kept as {_names(verified)}", {ENDING: "yes"})
        late = max(self._clock.now() - at, timedelta(seconds=self._clock.monotonic() - ran_s))
        if late > READ_TO_CALL:
            raise NotNow(f"{late.total_seconds():.0f} s after the fresh read: from the top")
        try:
            cloud.terminate(attempt.resource)
        except (AnswerLost, Unreachable) as error:
            raise NotNow(str(error)) from error
        except CloudError as error:
            return self._settler.close(attempt, Outcome.FAILED, f"stopped and snapshotted, and not ended: {error}", fresh)
        try:
            return self._ended(attempt, cloud, read(cloud, attempt.resource))
        except NotFound:
            return self._ended(attempt, cloud, None)

    @staticmethod
    def _guarded(facts: Facts, now: datetime) -> str | None:
        for guard in BEFORE_ENDING:
            finding = guard(facts, now)
            if finding is not None:
                return finding.because
        return None

    def _ended(self, attempt: Attempt, cloud: Cloud, now_is: Instance | None) -> Attempt:
        """Ours, if we were about to end it and every disk it had when we stopped it has its verified snapshot; else somebody else's."""
        if now_is is not None and now_is.state not in (InstanceState.TERMINATING, InstanceState.TERMINATED):
            raise NotNow(f"the machine is still {now_is.state}")
        verified = _verified(attempt, attempt.before, cloud.snapshots(attempt.resource, attempt.id))
        if attempt.action is Action.TERMINATE and verified is not None and self._settler.on_record(attempt, ENDING) is not None:
            return self._settler.close(attempt, Outcome.DONE, f"ended; its disks are kept as {_names(verified)}", now_is)
        return self._settler.close(attempt, Outcome.FAILED, "the machine was ended by somebody else", now_is)

    # --- before each call ---------------------------------------------------------------------------------------------

    def _may_end(self, attempt: Attempt, terms: Terms) -> None:
        """What bars taking anything away, beside `_permitted`. Raises NotNow."""
        if terms.refused is not None:
            raise NotNow(f"the newest configuration is not in force: {terms.refused}")
        for jump in terms.jumps:
            if jump.blocks(attempt.resource, self._clock.now()):
                raise NotNow(jump.because)
        now, since = self._clock.now(), self._clock.now() - budgets.DEBITS_OF
        # Its own debit is of when it began; a budget that was closed or spent since binds all the same.
        others = [debit for debit in self._store.debits(Action.TERMINATE, since) if (debit.resource, debit.at) != (attempt.resource, attempt.intent_at)]
        one = {"deletes": budgets.Ask(1)}
        refusal = budgets.refused(one, terms.gathering.configuration.budgets, others, now, len(tuple(terms.gathering.instances)))
        if refusal is not None:
            raise NotNow(refusal)

    def _permitted(self, attempt: Attempt, terms: Terms) -> None:
        """Raises NotNow."""
        configuration, lease = terms.gathering.configuration, terms.lease
        if configuration.mode is not Mode.ENFORCE:
            raise NotNow("mode is observe")
        verb = verb_missing(attempt.action, configuration.scope)
        if verb is not None:
            raise NotNow(f"[scope] verbs do not name {verb}")
        brake = self._brakes.engaged()
        if brake is not None:
            raise NotNow(brake)
        if self._clock.now() >= lease.expires_at:
            raise NotNow("our lease ran out")
        held = self._store.held_lease()
        if held is None or (held.epoch, held.holder) != (lease.epoch, lease.holder):
            raise NotNow("another reaper leads")
        fresh = terms.gathering.instance(attempt.resource)
        if fresh is None or not configuration.scope.what.matches(fresh):
            raise NotNow("outside [scope]")

    def _give_up_late(self, attempt: Attempt, why: str, terms: Terms) -> Attempt:
        age = self._clock.now() - attempt.intent_at
        if age <= WITHIN:
            return attempt
        return self._settler.close(attempt, Outcome.FAILED, f"not done within {span_text(WITHIN)}: {why}", terms.gathering.instance(attempt.resource))

    def _record(self, attempt: Attempt, kind: AuditKind, because: str, evidence: dict[str, str]) -> None:
        entry = AuditEntry(self._clock.now(), kind, attempt.actor, because, attempt.resource, attempt.action.value, attempt.id, evidence)
        self._store.append_audit(entry)


def _touched(attempt: Attempt, fresh: Instance) -> str | None:
    """Why the machine is not the one that we stopped any more."""
    if fresh.launched_at != attempt.before.launched_at:
        return "it was started again by somebody else"
    if fresh.volumes != attempt.before.volumes:
        return "its disks were changed by somebody else"
    if attempt.action is Action.TERMINATE and foreign_tags(fresh) != foreign_tags(attempt.before):
        return "its tags were changed by somebody else, who cares for it"  # an end is for good; a copy of its disks harms nobody
    return None


def _newest(snapshots: Sequence[Snapshot], volume: str) -> Snapshot | None:
    """Of those that have not failed."""
    good = [one for one in snapshots if one.volume == volume and one.state is not SnapshotState.FAILED]
    return good[-1] if good else None


def _verified(attempt: Attempt, machine: Instance, snapshots: Sequence[Snapshot]) -> tuple[Snapshot, ...] | None:
    """One complete snapshot of each disk, taken after our stop and tagged as ours; None: not all of them are there."""
    found = []
    for volume in machine.volumes:
        one = _newest(snapshots, volume)
        if one is None or one.state is not SnapshotState.COMPLETED or one.tags.get(f"{OWN_TAG_PREFIX}attempt") != attempt.id:
            return None
        if one.started_at is None or one.started_at < attempt.intent_at - timedelta(seconds=2):
            return None
        found.append(one)
    return tuple(found) if found else None


def _wrong(snapshot: Snapshot) -> str | None:
    """
    Why a complete snapshot is not a copy of its disk: whatever is wrong with it, nothing may rely on it, and a second one would
    be no better. Raises NotNow where that cannot be told.
    """
    told = snapshot.tags.get(f"{OWN_TAG_PREFIX}disk")
    if told != snapshot.volume:
        return f"{snapshot.id} is of {snapshot.volume}, and was taken as one of {told or 'a disk that its tags do not name'}"
    for what, has, wanted in (
        ("GiB", snapshot.size_gib, snapshot.disk_gib), ("encryption", snapshot.encrypted, snapshot.disk_encrypted),
    ):  # fmt: skip
        if has is None or wanted is None:
            raise NotNow(f"{what} of {snapshot.id} and of {snapshot.volume} cannot both be read")
        if has != wanted:
            words = f"{has} GiB and its disk {wanted} GiB" if what == "GiB" else f"{_encrypted(has)} and its disk {_encrypted(wanted)}"
            return f"{snapshot.id} of {snapshot.volume} is {words}"
    if snapshot.disk_attached_at is not None and snapshot.started_at is not None and snapshot.disk_attached_at >= snapshot.started_at:
        return f"{snapshot.volume} was attached again after {snapshot.id} of it was begun, and may have been written to elsewhere"
    return None


def _encrypted(is_so: object) -> str:
    return "encrypted" if is_so else "not encrypted"


def _names(snapshots: Sequence[Snapshot]) -> str:
    return ", ".join(f"{one.id} of {one.volume}" for one in snapshots)
