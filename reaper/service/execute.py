"""
The one place that changes anything in a cloud.

Before every mutating call, in this order: mode, kill switch, lease, budget (debited in the
intent's transaction), breaker, protection, fresh read, decide again, last look, intent
committed, call, verify, outcome committed. From the fresh read to the call at most ten
seconds, else from the top. The call goes through a client that does not retry.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import uuid4

from reaper import log
from reaper.decide import budget as budgets
from reaper.decide.breaker import Jump
from reaper.decide.engine import decide
from reaper.decide.last_look import last_look
from reaper.decide.planner import verb_of
from reaper.decide.undo import refuse_start
from reaper.errors import AnswerLost, BudgetSpent, CloudError, LeaseLost, NotFound, StoreError, Unreachable
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Action, Verdict
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.mark import Mark
from reaper.model.plan import Attempt, Debit, Outcome, PlannedAction
from reaper.model.policy import Configuration, Mode
from reaper.model.resource import ResourceId
from reaper.ports import Brakes, Clock, Cloud, Lease, Store
from reaper.service.gather import Gathering, read_known

_log = log.get(__name__)

READ_TO_CALL = timedelta(seconds=10)
STUCK_AFTER = timedelta(minutes=20)
"""A GPU machine takes minutes to stop; one that takes longer than this is a person's business."""

UNSEEN_AFTER = timedelta(minutes=2)
"""After an intent whose call may never have left us, how long the machine must stay as it was to call it off."""


class Withdrawn(Exception):
    """Why a planned action was not carried out after all. Not a failure: the world changed, and the second look saw it."""

    def __init__(self, by: str, because: str) -> None:
        self.by, self.because = by, because
        super().__init__(f"{by}: {because}")


@dataclass(frozen=True, slots=True)
class _Group:
    """What is budgeted together: one machine, or a gang whole. ``usd_per_hour`` None: not known."""

    resources: frozenset[ResourceId]
    began_at: datetime
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One planned action: the attempt it became, or why it was withdrawn before its intent."""

    planned: PlannedAction
    attempt: Attempt | None = None
    withdrawn: str | None = None


class Executor:
    """Carries out plans under one lease. ``jumps``: open breakers, asked again before each call."""

    def __init__(
        self, store: Store, clouds: Mapping[str, Cloud], clock: Clock, brakes: Brakes, marks: Callable[[], Mapping[tuple[ResourceId, Action], Mark]]
    ) -> None:
        self._store, self._clouds, self._clock, self._brakes, self._marks = store, clouds, clock, brakes, marks

    def carry_out(
        self, plan_id: str, actions: Sequence[PlannedAction], gathering: Gathering, lease: Lease, jumps: Sequence[Jump], running: int, actor: str = "reaper"
    ) -> tuple[Result, ...]:
        """
        Each action in turn; a gang whole or not at all: every member is looked at afresh before the first one is touched.

        One item that fails changes nothing for the others.
        """
        results: list[Result] = []
        for group in _by_gang(actions):
            prices = [planned.usd_per_hour for planned in group if planned.usd_per_hour is not None]
            together = _Group(frozenset(p.resource for p in group), self._clock.now(), sum(prices) if prices else None)
            try:
                for planned in group:
                    self._look(planned, gathering, lease, jumps)
            except Withdrawn as why:
                results += [self._withdraw(planned, why, actor) for planned in group]
                continue
            for planned in group:
                try:
                    attempt = self._act(plan_id, planned, together, gathering, lease, jumps, running, actor)
                except Withdrawn as why:
                    results.append(self._withdraw(planned, why, actor))
                else:
                    results.append(Result(planned, attempt))
        return tuple(results)

    def _withdraw(self, planned: PlannedAction, why: Withdrawn, actor: str) -> Result:
        _log.info("action withdrawn", resource=str(planned.resource), action=planned.action.value, by=why.by, because=why.because)
        entry = AuditEntry(
            self._clock.now(), AuditKind.WITHHELD, actor, why.because, planned.resource, planned.action.value, evidence={"by": why.by}
        )
        self._store.append_audit(entry)
        return Result(planned, withdrawn=f"{why.by}: {why.because}")

    # --- one action ---------------------------------------------------------------------------------------------------

    def _look(self, planned: PlannedAction, gathering: Gathering, lease: Lease, jumps: Sequence[Jump]) -> tuple[Instance, Mark, datetime]:
        """Everything up to the intent that costs nobody anything. Raises Withdrawn."""
        configuration, now = gathering.configuration, self._clock.now()
        self._permitted(planned, configuration, lease, jumps, now)
        cloud = self._clouds[planned.resource.cloud]
        read_at = self._clock.now()
        try:
            fresh = cloud.get(planned.resource)
        except CloudError as error:
            raise Withdrawn("fresh read", str(error)) from error
        protections = cloud.protections(planned.resource)
        self._in_time(cloud, now)
        gathering.known = read_known(self._store, now)
        gathering.replace_instance(fresh, read_at)
        facts = gathering.facts(planned.resource, self._clock.now(), protections)
        decision = decide(facts, self._clock.now())
        if decision.verdict is not Verdict.ACT or decision.action is not planned.action:
            raise Withdrawn("second look", decision.because)
        if facts.policy is None or facts.policy.mode is not Mode.ENFORCE:
            raise Withdrawn("mode", "its policy is in observe")
        mark = self._marks().get((planned.resource, planned.action))
        if mark is None:
            raise Withdrawn("mark", "its mark is gone")
        if mark.policy_digest != facts.policy.digest:
            raise Withdrawn("mark", "its policy changed since it was warned")
        why = last_look(mark, facts, self._clock.now())
        if why is not None:
            raise Withdrawn("last look", why)
        return fresh, mark, read_at

    def _permitted(self, planned: PlannedAction, configuration: Configuration, lease: Lease, jumps: Sequence[Jump], now: datetime) -> None:
        if configuration.mode is not Mode.ENFORCE:
            raise Withdrawn("mode", "mode is observe")
        verb = verb_of(planned.action)
        if not configuration.scope.given or verb not in configuration.scope.verbs:
            raise Withdrawn("scope", f"[scope] verbs do not name {verb}")
        brake = self._brakes.engaged()
        if brake is not None:
            raise Withdrawn("kill switch", brake)
        if now >= lease.expires_at:
            raise Withdrawn("lease", "our lease ran out")
        for jump in jumps:
            if jump.blocks(planned.resource, now):
                raise Withdrawn("breaker", jump.because)

    def _in_time(self, cloud: Cloud, now: datetime) -> None:
        skew = cloud.skew(now)
        if skew is None:
            raise Withdrawn("clock", "the cloud's time is not known")
        if abs(skew) > timedelta(seconds=30):
            raise Withdrawn("clock", f"our clock is {skew.total_seconds():.0f} s off the cloud's")

    def _act(
        self, plan_id: str, planned: PlannedAction, together: _Group, gathering: Gathering, lease: Lease, jumps: Sequence[Jump], running: int, actor: str
    ) -> Attempt:
        fresh, mark, read_at = self._look(planned, gathering, lease, jumps)
        attempt = Attempt(
            id=f"a-{uuid4().hex[:12]}", resource=planned.resource, action=planned.action, cause=planned.cause, policy=planned.policy,
            because=mark.because or planned.because, intent_at=self._clock.now(), before=fresh, actor=actor, plan=plan_id,
            usd_per_hour=planned.usd_per_hour, epoch=lease.epoch, holder=lease.holder,
        )  # fmt: skip
        self._intend(attempt, gathering.configuration, lease, running, together)
        late = self._clock.now() - read_at
        if late > READ_TO_CALL:
            closed = self._close(attempt, Outcome.ABANDONED, f"{late.total_seconds():.0f} s after the fresh read: from the top", None)
            raise Withdrawn("fresh read", closed.detail or "too old")
        # The switch and the lease once more: writing the intent may have waited for a slow disk.
        brake = self._brakes.engaged()
        if brake is not None:
            self._close(attempt, Outcome.ABANDONED, brake, None)
            raise Withdrawn("kill switch", brake)
        return self._call(attempt, gathering)

    def _intend(self, attempt: Attempt, configuration: Configuration, lease: Lease, running: int, together: _Group) -> None:
        budget = configuration.budgets.starts if attempt.action is Action.START else configuration.budgets.stops
        ask = budgets.Ask(len(together.resources), together.usd_per_hour)

        def admit(debits: tuple[Debit, ...]) -> str | None:
            # A gang is asked for whole each time: what its own members took a moment ago is already in the asking.
            others = [d for d in debits if d.resource not in together.resources or d.at < together.began_at]
            return budgets.refusal(ask, budgets.limits(budget, others, attempt.intent_at, running))

        entry = AuditEntry(
            attempt.intent_at, AuditKind.INTENT, attempt.actor, attempt.because, attempt.resource, attempt.action.value, attempt.id,
            {"policy": attempt.policy, "cause": attempt.cause, "plan": attempt.plan or "", "type": attempt.before.type},
        )  # fmt: skip
        try:
            self._store.begin_attempt(attempt, lease, self._clock.now(), entry, admit)
        except BudgetSpent as error:
            raise Withdrawn("budget", str(error)) from error
        except (LeaseLost, StoreError) as error:
            raise Withdrawn("lease", str(error)) from error

    def _call(self, attempt: Attempt, gathering: Gathering) -> Attempt:
        cloud = self._clouds[attempt.resource.cloud]
        verb = cloud.start if attempt.action is Action.START else cloud.stop
        _log.info("action begun", resource=str(attempt.resource), action=attempt.action.value, attempt=attempt.id, because=attempt.because)
        try:
            verb(attempt.resource)
        except (AnswerLost, Unreachable) as error:
            _log.warning("answer lost; reading what happened", resource=str(attempt.resource), attempt=attempt.id, because=str(error))
            return self.settle(attempt, gathering)
        except CloudError as error:
            return self._close(attempt, Outcome.REFUSED, str(error), None)
        return self.settle(attempt, gathering)

    # --- afterwards ---------------------------------------------------------------------------------------------------

    def settle(self, attempt: Attempt, gathering: Gathering | None = None) -> Attempt:
        """Read the machine and close the attempt if its end can be told; else it stays open and is asked again next cycle."""
        cloud = self._clouds.get(attempt.resource.cloud)
        if cloud is None:
            return attempt
        try:
            now_is = cloud.get(attempt.resource)
        except NotFound as error:
            return self._close(attempt, Outcome.FAILED, f"the machine is gone: {error}", None)
        except CloudError as error:
            _log.warning("outcome not readable yet", resource=str(attempt.resource), attempt=attempt.id, because=str(error))
            return attempt
        if gathering is not None:
            gathering.replace_instance(now_is, self._clock.now())
        outcome, detail = _end_of(attempt, now_is, self._clock.now())
        return attempt if outcome is None else self._close(attempt, outcome, detail, now_is)

    def settle_open(self, gathering: Gathering | None = None) -> tuple[Attempt, ...]:
        """Close what a crash or a slow machine left open, by reading. Never calls a verb."""
        return tuple(self.settle(attempt, gathering) for attempt in self._store.attempts(open_only=True))

    def _close(self, attempt: Attempt, outcome: Outcome, detail: str, after: Instance | None) -> Attempt:
        now = self._clock.now()
        closed = replace(attempt, outcome=outcome, outcome_at=now, detail=detail, after=after)
        took = f"{(now - attempt.intent_at).total_seconds():.1f} s"
        entry = AuditEntry(
            now, AuditKind.OUTCOME, attempt.actor, detail, attempt.resource, attempt.action.value, attempt.id, {"outcome": outcome.value, "took": took}
        )
        self._store.end_attempt(closed, entry)
        _log.info("action finished", resource=str(attempt.resource), action=attempt.action.value, attempt=attempt.id, outcome=outcome.value, detail=detail)
        return closed

    # --- starting again -----------------------------------------------------------------------------------------------

    def start_again(self, stopped: Attempt, gathering: Gathering, lease: Lease, running: int, actor: str) -> Attempt:
        """
        Undo a stop of ours by a start. The same order; nothing is taken away, so guards and breaker do not bind.

        Raises Withdrawn: mode, scope, budget of starts, or the machine is not as we left it.
        """
        configuration = gathering.configuration
        if configuration.mode is not Mode.ENFORCE:
            raise Withdrawn("mode", "mode is observe")
        if not configuration.scope.given or "start" not in configuration.scope.verbs:
            raise Withdrawn("scope", "[scope] verbs do not name start")
        cloud = self._clouds.get(stopped.resource.cloud)
        if cloud is None:
            raise Withdrawn("scope", f"no cloud {stopped.resource.cloud} is configured")
        try:
            fresh = cloud.get(stopped.resource)
        except CloudError as error:
            raise Withdrawn("fresh read", str(error)) from error
        why = refuse_start(stopped, fresh)
        if why is not None:
            raise Withdrawn("undo", why)
        attempt = Attempt(
            id=f"a-{uuid4().hex[:12]}", resource=stopped.resource, action=Action.START, cause="undo", policy=stopped.policy,
            because=f"undo of {stopped.id}", intent_at=self._clock.now(), before=fresh, actor=actor, epoch=lease.epoch, holder=lease.holder,
        )  # fmt: skip
        self._intend(attempt, configuration, lease, running, _Group(frozenset((attempt.resource,)), attempt.intent_at))
        return self._call(attempt, gathering)


def _end_of(attempt: Attempt, now_is: Instance, now: datetime) -> tuple[Outcome | None, str]:
    """How an attempt ended, by what the machine is now; None while that cannot be told yet."""
    age = now - attempt.intent_at
    if attempt.action is Action.START:
        wanted, going = InstanceState.RUNNING, (InstanceState.PENDING,)
    else:
        wanted, going = InstanceState.STOPPED, (InstanceState.STOPPING,)
    if now_is.state is wanted:
        return Outcome.DONE, f"{wanted}, read back from the cloud"
    if now_is.state in going:
        return (Outcome.FAILED, f"still {now_is.state} after {age}") if age > STUCK_AFTER else (None, "")
    if now_is.state in (InstanceState.TERMINATED, InstanceState.TERMINATING):
        return Outcome.FAILED, f"the machine is {now_is.state}, by somebody else"
    if age > UNSEEN_AFTER:
        return Outcome.FAILED, f"still {now_is.state}: the call did not take effect"
    return None, ""


def _by_gang(actions: Sequence[PlannedAction]) -> list[list[PlannedAction]]:
    groups: dict[str, list[PlannedAction]] = {}
    for action in actions:
        groups.setdefault(action.gang or str(action.resource), []).append(action)
    return list(groups.values())
