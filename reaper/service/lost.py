"""
Work that a stop of ours interrupted: found out at the machine's next boot, told loudly, and its policy acts no more.

The door writes down what an agent tells, if it was our stop that ended the boot it speaks of. The leading cycle raises
the alarm and the policy goes back to observe, in effect, until a person edits it. Whoever says it, the worst that a lie
can do is that less is stopped; one stop of ours can be blamed once.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reaper import log
from reaper.errors import StoreError
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.plan import Attempt, Outcome
from reaper.model.policy import Configuration, Mode, Policy, owner_of
from reaper.model.resource import ResourceId
from reaper.model.signal import Observation, Voice
from reaper.ports import Message, Store
from reaper.service.announce import Announcer

ENDS_WITHIN = timedelta(minutes=20)
"""How long after a stop was asked for the stopping machine may still be heard."""

_BOOTED_OFF = timedelta(seconds=30)
_KEPT = 50

_log = log.get("work-lost")


@dataclass(frozen=True, slots=True)
class LostWork:
    """One stop of ours and what it ended. ``peak`` 0..1: of the busiest GPU in that boot's last window; None: not told."""

    attempt: str
    resource: str
    at: datetime
    peak: float | None
    because: str
    verified: bool

    def counts(self, policy: Policy) -> bool:
        """Whether it was work by this policy's own terms: what it calls idle, it may stop."""
        return self.peak is None or self.peak > policy.idle.gpu_at_most


@dataclass(frozen=True, slots=True)
class _Handled:
    """
    What the leader did about a policy's losses. ``digest``: the terms that were put back; ``attempts`` it has dealt with,
    ``untold`` those of them that no channel accepted yet; ``lifted``: a person has edited the policy since.
    """

    digest: str | None = None
    attempts: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    lifted: bool = False


def _told_key(policy: str) -> str:
    return f"work-lost:{policy}"


def _handled_key(policy: str) -> str:
    return f"work-lost-handled:{policy}"


# --- the door ---------------------------------------------------------------------------------------------------------


def record(store: Store, seen: Observation, boot_id: str, peak: float | None, because: str, before: Voice | None, now: datetime) -> bool:
    """
    An agent tells that the boot ``boot_id`` ended with work on its GPUs; ``before``: the machine's voice up to this report.

    True, and written down, when a stop of ours ended that boot and was not blamed before. Raises StoreError.
    """
    stop = _stop_that_ended(store, seen, boot_id, before)
    if stop is None or stop.at_work:  # whose schedule stops work in so many words: that it did is no surprise
        return False
    one = LostWork(stop.id, str(seen.resource), now, peak, because, seen.verified)
    blamed = False

    def blame(kept: str | None) -> str | None:  # several doors may tell of losses under one policy at once
        nonlocal blamed
        known = _read_losses(kept, stop.policy)
        blamed = all(other.attempt != stop.id for other in known)
        return json.dumps([_plain(loss) for loss in (*known, one)[-_KEPT:]]) if blamed else None

    store.edit_fact(_told_key(stop.policy), blame)
    if not blamed:
        return False
    _log.warning("an agent tells of lost work", resource=one.resource, attempt=stop.id, policy=stop.policy, because=because, verified=seen.verified)
    return True


def _stop_that_ended(store: Store, seen: Observation, boot_id: str, before: Voice | None) -> Attempt | None:
    """The newest stop of ours, if the boot lived when it was asked for, was not heard long after, and this one began later."""
    if before is None or before.boot_id != boot_id or seen.boot_id == boot_id:
        return None
    attempts = store.attempts(resource=seen.resource, limit=20)
    stop = next((a for a in attempts if a.action.takes_away and a.outcome not in (Outcome.REFUSED, Outcome.ABANDONED)), None)
    if stop is None:
        return None
    booted_at = seen.ended_at - timedelta(seconds=seen.up_s)
    lived = before.boot_since <= stop.intent_at and before.last_at <= stop.intent_at + ENDS_WITHIN
    return stop if lived and stop.intent_at <= booted_at + _BOOTED_OFF else None


# --- in effect --------------------------------------------------------------------------------------------------------


def put_back(policy: Policy, store: Store) -> str | None:
    """Why this policy observes whatever it says; None: nothing was lost under it, or a person has edited it since. Raises StoreError."""
    losses = _losses(store, policy.name)
    if not losses:
        return None
    handled = _read_handled(store, policy.name)
    counted = [one for one in losses if one.counts(policy)]
    fresh = [one for one in counted if one.attempt not in handled.attempts]
    if fresh:
        return _sentence(policy, fresh[-1])
    if not counted or handled.lifted or handled.digest != policy.digest:
        return None
    return _sentence(policy, counted[-1])


def in_effect(configuration: Configuration, store: Store) -> Configuration:
    """The same with the policies that lost work in observe. Their digest differs too, so that nobody's warning is carried across."""
    policies = tuple(
        replace(p, mode=Mode.OBSERVE, digest=f"{p.digest}-put-back") if p.mode is Mode.ENFORCE and put_back(p, store) is not None else p
        for p in configuration.policies
    )
    return replace(configuration, policies=policies) if policies != configuration.policies else configuration


def notes(configuration: Configuration, store: Store) -> tuple[str, ...]:
    """One sentence for each policy that is put back, of the configuration as it is written."""
    return tuple(why for policy in configuration.policies if policy.mode is Mode.ENFORCE and (why := put_back(policy, store)) is not None)


def _sentence(policy: Policy, loss: LostWork) -> str:
    return (
        f"policy {policy.name} is put back to observe: stop {loss.attempt} of {loss.resource} interrupted work "
        f"({loss.because}); look into it and edit the policy, which lifts this"
    )


# --- the leader -------------------------------------------------------------------------------------------------------


def step(store: Store, configuration: Configuration, announcer: Announcer, now: datetime) -> tuple[LostWork, ...]:
    """Raise the alarm for what is new, and note what a person has lifted. ``configuration`` as it is written. The new losses are answered."""
    return tuple(loss for policy in configuration.policies for loss in _step(store, policy, announcer, now))


def _step(store: Store, policy: Policy, announcer: Announcer, now: datetime) -> tuple[LostWork, ...]:
    losses = _losses(store, policy.name)
    if not losses:
        return ()
    before = handled = _read_handled(store, policy.name)
    fresh = [one for one in losses if one.attempt not in handled.attempts]
    counted = tuple(one for one in fresh if one.counts(policy))
    kept = tuple(one.attempt for one in losses)
    if counted:
        handled = _Handled(policy.digest, kept, (*handled.untold, *(one.attempt for one in counted)))
    else:
        handled = replace(handled, attempts=kept)
        if handled.digest is not None and handled.digest != policy.digest and not handled.lifted:
            handled = replace(handled, lifted=True)
            because = f"policy {policy.name} was edited: it is no longer put back to observe for lost work"
            store.append_audit(AuditEntry(now, AuditKind.LOST, "reaper", because, evidence={"policy": policy.name}))
            _log.warning("policy lifted", policy=policy.name, because=because)
    for one in counted:
        _log.error("work lost", resource=one.resource, attempt=one.attempt, policy=policy.name, because=one.because, verified=one.verified)
        store.append_audit(_entry(one, policy, now))
    untold = tuple(one.attempt for one in losses if one.attempt in handled.untold and not _tell(store, one, policy, announcer, now))
    handled = replace(handled, untold=untold)
    if handled != before:
        store.set_facts({_handled_key(policy.name): json.dumps({
            "digest": handled.digest, "attempts": handled.attempts, "untold": handled.untold, "lifted": handled.lifted,
        })})  # fmt: skip
    return counted


def _entry(one: LostWork, policy: Policy, now: datetime) -> AuditEntry:
    evidence = {"policy": policy.name, "told by": "its agent" if one.verified else "an unverified voice"}
    if one.peak is not None:
        evidence |= {"value": f"{one.peak:.0%}", "limit": f"{policy.idle.gpu_at_most:.0%}"}
    return AuditEntry(now, AuditKind.LOST, "reaper", _sentence(policy, one), ResourceId.parse(one.resource), attempt=one.attempt, evidence=evidence)


def _tell(store: Store, one: LostWork, policy: Policy, announcer: Announcer, now: datetime) -> bool:
    resource, attempt = ResourceId.parse(one.resource), store.attempt(one.attempt)
    message = Message(
        event="work-lost", resource=resource, name=attempt.before.title if attempt is not None else resource.native,
        action=attempt.action.value if attempt is not None else "stop", because=_sentence(policy, one), at=now, policy=policy.name,
        owner=owner_of(attempt.before, policy.owner) if attempt is not None else None,
    )  # fmt: skip
    return announcer.send(message, policy.warn.via) is not None


# --- as it is kept ----------------------------------------------------------------------------------------------------


def _plain(one: LostWork) -> dict[str, object]:
    return {
        "attempt": one.attempt, "resource": one.resource, "at": one.at.isoformat(), "peak": one.peak, "because": one.because, "verified": one.verified,
    }  # fmt: skip


def _losses(store: Store, policy: str) -> tuple[LostWork, ...]:
    """Oldest first."""
    return _read_losses(store.fact(_told_key(policy)), policy)


def _read_losses(kept: str | None, policy: str) -> tuple[LostWork, ...]:
    if kept is None:
        return ()
    try:
        return tuple(_loss(row) for row in json.loads(kept))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"the fact {_told_key(policy)} cannot be read ({error}); nothing is assumed in its place") from error


def _loss(row: dict[str, object]) -> LostWork:
    peak = row["peak"]
    return LostWork(
        attempt=str(row["attempt"]), resource=str(row["resource"]), at=datetime.fromisoformat(str(row["at"])),
        peak=float(peak) if isinstance(peak, int | float) else None, because=str(row["because"]), verified=bool(row["verified"]),
    )  # fmt: skip


def _read_handled(store: Store, policy: str) -> _Handled:
    kept = store.fact(_handled_key(policy))
    if kept is None:
        return _Handled()
    try:
        row = json.loads(kept)
        return _Handled(row["digest"], _texts(row["attempts"]), _texts(row["untold"]), bool(row["lifted"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"the fact {_handled_key(policy)} cannot be read ({error}); nothing is assumed in its place") from error


def _texts(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)
