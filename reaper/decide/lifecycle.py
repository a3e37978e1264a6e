"""
How a mark moves: nominated, warned, due. One step a cycle, pure.

The warning goes out at once; the wait counts only outside quiet hours and only in observed
cycles. On hold and UNKNOWN pause it. BUSY, a hole, a protection, a snooze or no cause
nominating any more clears it. Every change is an event, an unmark as loud as a mark.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reaper.decide.causes import after_hours, gpu_idle, held, job_ended
from reaper.decide.guards import snoozed
from reaper.model.decision import Action, Decision, FindingKind, Verdict
from reaper.model.mark import Mark, MarkChange, MarkEvent, Stage
from reaper.model.policy import Policy

CLEARING_HOLDS = (snoozed.NAME,)
"""Holds that forget a countdown instead of pausing it: a person said "not until"."""

WARNS_ITSELF = (job_ended.NAME, after_hours.NAME)
"""Causes whose warning is another one: what was waited for one of them counts nothing for another cause, nor the other way round."""


@dataclass(frozen=True, slots=True)
class Step:
    """``mark``: None when there is none any more. ``warn``: its warning has still to be accepted by a channel."""

    mark: Mark | None
    events: tuple[MarkEvent, ...] = ()
    warn: bool = False


def advance(mark: Mark | None, decision: Decision, policy: Policy | None, now: datetime, cycle: timedelta) -> Step:
    """
    One cycle's step for one resource. ``mark`` is of the decision's action, or None.

    ``cycle``: the configured interval. At most two of them count for one step, however long ago the last one was.
    """
    events: tuple[MarkEvent, ...] = ()
    if decision.action in (Action.START, Action.TAG):
        return Step(None)  # a start is due when it is nominated, and nobody has to be warned of it
    if mark is not None and policy is not None:
        decision = preferred(mark, decision, policy, now)
    if mark is not None:
        gone = cleared_by(mark, decision, policy)
        if gone is not None:
            events = (MarkEvent(mark, MarkChange.CLEARED, gone),)
            mark = None
    if policy is None or decision.cause is None or decision.verdict is Verdict.KEEP:
        return Step(None, events)
    if decision.verdict is Verdict.WAIT:
        if mark is None:
            return Step(None, events)
        paused = replace(mark, counted_at=now, paused=decision.because)
        if mark.paused is None:
            events += (MarkEvent(paused, MarkChange.PAUSED, decision.because),)
        return Step(paused, events)
    if mark is None:
        mark = Mark(
            resource=decision.resource, action=decision.action, cause=decision.cause, policy=policy.name, policy_digest=policy.digest,
            stage=Stage.NOMINATED, nominated_at=now, counted_at=now, because=decision.because, not_before=_not_before(decision),
        )  # fmt: skip
        return Step(mark, (*events, MarkEvent(mark, MarkChange.NOMINATED, decision.because)), warn=True)
    mark = replace(mark, cause=decision.cause, because=decision.because, not_before=_not_before(decision))
    mark, more = _count(mark, policy, now, cycle)
    return Step(mark, (*events, *more), warn=mark.stage is Stage.NOMINATED)


def preferred(mark: Mark, decision: Decision, policy: Policy, now: datetime) -> Decision:
    """
    The decision by the cause that the mark was warned for, where a schedule's nominates beside it and would come no sooner:
    whoever was warned once is not warned again for the same stop.
    """
    if decision.cause == mark.cause or decision.cause != after_hours.NAME or decision.action is not mark.action:
        return decision
    own = next((f for f in decision.findings if f.kind is FindingKind.NOMINATE and f.rule == mark.cause and f.action is mark.action), None)
    if own is None or (decision.verdict is Verdict.ACT and any(mark.cause not in objection.exempts for objection in decision.objections)):
        return decision
    other = _not_before(decision)
    later = now + policy.warn_for(after_hours.NAME).wait
    due = earliest(mark, policy, now) if mark.paused is None else now
    if due is None or due > (later if other is None else max(later, other)):
        return decision
    return replace(decision, cause=mark.cause, because=own.because if decision.verdict is Verdict.ACT else decision.because)


def _not_before(decision: Decision) -> datetime | None:
    nomination = decision.nomination
    return nomination.not_before if nomination is not None else None


def cleared_by(mark: Mark, decision: Decision, policy: Policy | None) -> str | None:
    """Why ``decision`` forgets the mark; None: it stands, if perhaps paused. Asked once more right before acting."""
    if decision.cause is None or policy is None:
        return decision.because
    if decision.verdict is Verdict.KEEP:
        return decision.because
    if decision.action is not mark.action:
        return f"{decision.action} is nominated instead"
    if policy.name != mark.policy:
        return f"it came under policy {policy.name}"
    if policy.digest != mark.policy_digest:
        return f"policy {policy.name} changed"
    if mark.cause == gpu_idle.NAME and decision.cause == held.NAME:
        return "something was put on its GPUs"  # somebody came: who was warned before that is not warned of this
    if mark.cause != decision.cause and (mark.cause in WARNS_ITSELF or decision.cause in WARNS_ITSELF):
        return f"{decision.cause} nominates it now, with a warning of its own, and no longer {mark.cause}"
    for finding in decision.objections:
        if finding.rule in CLEARING_HOLDS:
            return finding.because
    return None


def _count(mark: Mark, policy: Policy, now: datetime, cycle: timedelta) -> tuple[Mark, tuple[MarkEvent, ...]]:
    events: tuple[MarkEvent, ...] = ()
    resumed = mark.paused is not None
    if resumed:
        mark = replace(mark, paused=None)
        events = (MarkEvent(mark, MarkChange.RESUMED, mark.because),)
    if mark.stage is Stage.WARNED:
        terms = policy.warn_for(mark.cause)
        quiet = terms.quiet
        in_quiet = quiet is not None and (quiet.contains(now) or quiet.contains(mark.counted_at))
        if not in_quiet and not resumed:  # the time it stood still does not count
            mark = replace(mark, waited=mark.waited + max(min(now - mark.counted_at, 2 * cycle), timedelta(0)))
        mark = replace(mark, counted_at=now)
        if mark.waited >= terms.wait and (mark.not_before is None or now >= mark.not_before):
            mark = replace(mark, stage=Stage.DUE, due_at=now)
            events += (MarkEvent(mark, MarkChange.DUE, mark.because),)
    return replace(mark, counted_at=now), events


def accepted(mark: Mark, now: datetime, via: str) -> tuple[Mark, MarkEvent]:
    """A channel took the warning: the wait begins."""
    warned = replace(mark, stage=Stage.WARNED, warned_at=now, warned_via=via, counted_at=now, waited=timedelta(0))
    return warned, MarkEvent(warned, MarkChange.WARNED, mark.because)


def earliest(mark: Mark, policy: Policy, now: datetime) -> datetime | None:
    """The earliest moment it can be due, were nothing to change; None while it stands still or was not warned yet."""
    if mark.stage is Stage.DUE:
        return mark.due_at
    if mark.stage is Stage.NOMINATED or mark.paused is not None:
        return None
    terms = policy.warn_for(mark.cause)
    left = terms.wait - mark.waited
    moment = now
    quiet = terms.quiet
    first = mark.not_before or now
    if quiet is None:
        return max(now + left, first)
    step = timedelta(minutes=1)
    for _ in range(60 * 24 * 31):
        if left <= timedelta(0):
            return max(moment, first)
        if not quiet.contains(moment):
            left -= step
        moment += step
    return None
