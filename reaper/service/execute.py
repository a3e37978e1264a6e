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
from reaper.decide import lifecycle
from reaper.decide.breaker import Jump
from reaper.decide.closing import owed_by
from reaper.decide.engine import decide
from reaper.decide.facts import MOST_AHEAD
from reaper.decide.last_look import last_look
from reaper.decide.planner import verb_missing
from reaper.decide.undo import refuse_start
from reaper.errors import AnswerLost, BudgetSpent, CloudError, LeaseLost, StoreError
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Action, Verdict
from reaper.model.kinds.instance import Instance, Protections
from reaper.model.mark import Mark
from reaper.model.plan import Attempt, Debit, Outcome, PlannedAction
from reaper.model.policy import AFTER_HOURS, MORNING_START, Configuration, Mode
from reaper.model.resource import ResourceId
from reaper.ports import Brakes, Clock, Cloud, Lease, Store
from reaper.service.gather import Gathering, read_known
from reaper.service.lost import put_back
from reaper.service.recipes import Recipes, Terms
from reaper.service.settle import ACCEPTED, LATER_STEPS, READ_TO_CALL, Settler, read

_log = log.get(__name__)

DEBITS_OF = budgets.DEBITS_OF

TAKEN = budgets.TAKEN

FIRST_VERB = {
    Action.START: "start",
    Action.SUSPEND: "hibernate",  # the same to a cloud that does it: memory is kept, the machine goes
    Action.HIBERNATE: "hibernate",
    Action.STOP: "stop",
    Action.STOP_AND_SNAPSHOT: "stop",
    Action.TERMINATE: "stop",
}
"""What an action begins with. One that does not stand here is never carried out."""


class Withdrawn(Exception):
    """Why a planned action was not carried out after all. Not a failure: the world changed, and the second look saw it."""

    def __init__(self, by: str, because: str) -> None:
        self.by, self.because = by, because
        super().__init__(f"{by}: {because}")


@dataclass(frozen=True, slots=True)
class _Group:
    """What is budgeted together: one machine, or a gang whole. ``asks``: by budget."""

    resources: frozenset[ResourceId]
    began_at: datetime
    asks: Mapping[str, budgets.Ask]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A fresh read: the machine, its costly protections, and when it was asked for on the wall and on the clock that never steps."""

    instance: Instance
    protections: Protections
    at: datetime
    ran_s: float


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
        self._begun: dict[str, budgets.Ask] = {}
        self._owe: Callable[[Attempt, Attempt], None] = lambda stopped, attempt: None
        self.settler = Settler(store, clouds, clock)
        self._recipes = Recipes(store, clouds, clock, brakes, self.settler)

    def on_start(self, owe: Callable[[Attempt, Attempt], None]) -> None:
        """``owe`` is told of every start between its intent and its call: the stop that it undoes, and the start."""
        self._owe = owe

    def begin_cycle(self) -> None:
        """What is begun from here on counts towards the limits per cycle, what people approved too."""
        self._begun.clear()

    def carry_out(
        self, plan_id: str, actions: Sequence[PlannedAction], gathering: Gathering, lease: Lease, jumps: Sequence[Jump], running: int, actor: str = "reaper"
    ) -> tuple[Result, ...]:
        """
        Each action in turn; a gang whole or not at all: every member is looked at afresh before the first one is touched,
        and the next is touched only once the one before is seen going down.

        One item that fails changes nothing for the others.
        """
        results: list[Result] = []
        for group in _by_gang(actions):
            together = _Group(frozenset(p.resource for p in group), self._clock.now(), budgets.asks([(p.action, p.usd_per_hour) for p in group]))
            try:
                self._in_cycle(gathering.configuration, together)
                for planned in group:
                    self._look(planned, together, gathering, lease, jumps)
            except Withdrawn as why:
                results += [self._withdraw(planned, why, actor) for planned in group]
                continue
            up: str | None = None  # the first of the group that stays up, after which the rest is called off
            for planned in group:
                try:
                    if up is not None:
                        raise Withdrawn("gang", f"goes with its job whole, and {up} stays up")
                    attempt = self._act(plan_id, planned, together, gathering, lease, jumps, running, actor)
                except Withdrawn as why:
                    results.append(self._withdraw(planned, why, actor))
                    up = up or planned.name
                    continue
                self._count(planned.action)
                results.append(Result(planned, attempt))
                now_is = gathering.instance(planned.resource)
                if now_is is not None and now_is.state.counts:
                    up = planned.name
        return tuple(results)

    def _withdraw(self, planned: PlannedAction, why: Withdrawn, actor: str) -> Result:
        _log.info("action withdrawn", resource=str(planned.resource), action=planned.action.value, by=why.by, because=why.because)
        entry = AuditEntry(
            self._clock.now(), AuditKind.WITHHELD, actor, why.because, planned.resource, planned.action.value, evidence={"by": why.by}
        )
        self._store.append_audit(entry)
        return Result(planned, withdrawn=f"{why.by}: {why.because}")

    # --- one action ---------------------------------------------------------------------------------------------------

    def _look(self, planned: PlannedAction, together: _Group, gathering: Gathering, lease: Lease, jumps: Sequence[Jump]) -> tuple[_Seen, Mark]:
        """Everything up to the intent that costs nobody anything. Raises Withdrawn."""
        self._permitted(planned, gathering.configuration, lease, jumps, self._clock.now())
        cloud = self._clouds.get(planned.resource.cloud)
        if cloud is None:
            raise Withdrawn("scope", f"no cloud {planned.resource.cloud} is configured")
        at, ran_s = self._clock.now(), self._clock.monotonic()
        try:
            fresh = read(cloud, planned.resource)
        except CloudError as error:
            raise Withdrawn("fresh read", str(error)) from error
        seen = _Seen(fresh, cloud.protections(planned.resource), at, ran_s)
        self._in_time(cloud, self._clock.now())
        gathering.replace_instance(fresh, at)
        return seen, self._stands(planned, together, gathering, seen)

    def _stands(self, planned: PlannedAction, together: _Group, gathering: Gathering, seen: _Seen, *, begun: bool = False) -> Mark:
        """
        Decide again, from what people and agents said up to now. ``begun``: our own intent is the open attempt.

        Raises Withdrawn.
        """
        gathering.known = read_known(self._store, self._clock.now())
        if begun:
            gathering.known = replace(gathering.known, open_attempts=gathering.known.open_attempts - {planned.resource})
        gathering.catch_up(self._store, planned.resource, self._clock.now())
        now = self._clock.now()
        facts = gathering.facts(planned.resource, now, seen.protections)
        decision = decide(facts, now)
        if decision.verdict is not Verdict.ACT or decision.action is not planned.action:
            raise Withdrawn("second look", decision.because)
        if facts.policy is None or facts.policy.mode is not Mode.ENFORCE:
            raise Withdrawn("mode", "its policy is in observe")
        lost = put_back(facts.policy, self._store)
        if lost is not None:
            raise Withdrawn("mode", lost)
        mark = self._marks().get((planned.resource, planned.action))
        if mark is None:
            raise Withdrawn("mark", "its mark is gone")
        decision = lifecycle.preferred(mark, decision, facts.policy, now)
        gone = lifecycle.cleared_by(mark, decision, facts.policy)
        if gone is not None:
            raise Withdrawn("mark", gone)
        apart = [member.name for member in facts.members if member.id not in together.resources]
        if apart:
            raise Withdrawn("gang", f"goes with its job whole, and {', '.join(apart[:3])} is not in this plan")
        why = last_look(mark, facts, now)
        if why is not None:
            raise Withdrawn("last look", why)
        return mark

    def _permitted(self, planned: PlannedAction, configuration: Configuration, lease: Lease, jumps: Sequence[Jump], now: datetime) -> None:
        if configuration.mode is not Mode.ENFORCE:
            raise Withdrawn("mode", "mode is observe")
        verb = verb_missing(planned.action, configuration.scope)
        if verb is not None:
            raise Withdrawn("scope", f"[scope] verbs do not name {verb}")
        brake = self._brakes.engaged()
        if brake is not None:
            raise Withdrawn("kill switch", brake)
        if now >= lease.expires_at:
            raise Withdrawn("lease", "our lease ran out")
        for jump in jumps:
            if jump.blocks(planned.resource, now):
                raise Withdrawn("breaker", jump.because)

    def _in_cycle(self, configuration: Configuration, together: _Group) -> None:
        refusal = budgets.refused_this_cycle(together.asks, configuration.budgets, self._begun)
        if refusal is not None:
            raise Withdrawn("budget", refusal)

    def _count(self, action: Action) -> None:
        self._begun = budgets.together(self._begun, budgets.asks([(action, None)]))

    def _in_time(self, cloud: Cloud, now: datetime) -> None:
        skew = cloud.skew(now)
        if skew is None:
            raise Withdrawn("clock", "the cloud's time is not known")
        if abs(skew) > timedelta(seconds=30):
            raise Withdrawn("clock", f"our clock is {skew.total_seconds():.0f} s off the cloud's")
        try:
            off = self._store.skew(now)
        except StoreError as error:
            raise Withdrawn("store", str(error)) from error
        if off is not None and abs(off) > timedelta(seconds=30):
            raise Withdrawn("clock", f"our clock is {off.total_seconds():.0f} s off the database's")

    def _act(
        self, plan_id: str, planned: PlannedAction, together: _Group, gathering: Gathering, lease: Lease, jumps: Sequence[Jump], running: int, actor: str
    ) -> Attempt:
        seen, mark = self._look(planned, together, gathering, lease, jumps)
        attempt = Attempt(
            id=f"a-{uuid4().hex[:12]}", resource=planned.resource, action=planned.action, cause=planned.cause, policy=planned.policy,
            because=mark.because or planned.because, intent_at=self._clock.now(), before=seen.instance, actor=actor, plan=plan_id,
            usd_per_hour=planned.usd_per_hour, epoch=lease.epoch, holder=lease.holder,
            owed_by=owed_by(gathering.hours_of(planned.resource), self._clock.now()) if planned.action.stops else None,
            at_work=mark.cause == AFTER_HOURS and gathering.facts(planned.resource, self._clock.now()).stops_at_work,
        )  # fmt: skip
        self._intend(attempt, gathering.configuration, lease, running, together)
        try:
            # All of it once more: writing the intent may have waited for a slow disk, and people and jobs do not.
            self._stands(planned, together, gathering, seen, begun=True)
            self._permitted(planned, gathering.configuration, lease, jumps, self._clock.now())
            self._soon(seen.at, seen.ran_s)
        except Withdrawn as why:
            self.settler.close(attempt, Outcome.ABANDONED, why.because, None)
            raise
        return self._call(attempt, gathering)

    def _soon(self, at: datetime, ran_s: float) -> None:
        """Not long after the fresh read, by either clock: the wall's may be set back, the other stands still in a suspended host."""
        late = self._clock.now() - at
        if late < -MOST_AHEAD:
            raise Withdrawn("clock", "our clock was set back after the fresh read")
        late = max(late, timedelta(seconds=self._clock.monotonic() - ran_s))
        if late > READ_TO_CALL:
            raise Withdrawn("fresh read", f"{late.total_seconds():.0f} s after the fresh read: from the top")

    def _intend(self, attempt: Attempt, configuration: Configuration, lease: Lease, running: int, together: _Group) -> None:
        since = attempt.intent_at - DEBITS_OF
        others_too = [action for action in budgets.counted_with(attempt.action) if action is not attempt.action]
        elsewhere = [debit for action in others_too for debit in self._store.debits(action, since)]

        def admit(debits: tuple[Debit, ...]) -> str | None:
            # A gang is asked for whole each time: what its own members took a moment ago is already in the asking.
            others = [d for d in (*debits, *elsewhere) if d.resource not in together.resources or d.at < together.began_at]
            return budgets.refused(together.asks, configuration.budgets, others, attempt.intent_at, running)

        entry = AuditEntry(
            attempt.intent_at, AuditKind.INTENT, attempt.actor, attempt.because, attempt.resource, attempt.action.value, attempt.id,
            {"policy": attempt.policy, "cause": attempt.cause, "plan": attempt.plan or "", "type": attempt.before.type},
        )  # fmt: skip
        try:
            self._store.begin_attempt(attempt, lease, self._clock.now(), entry, admit)
        except BudgetSpent as error:
            raise Withdrawn("budget", str(error)) from error
        except (LeaseLost, StoreError) as error:
            raise Withdrawn("lease" if isinstance(error, LeaseLost) else "store", str(error)) from error

    def _call(self, attempt: Attempt, gathering: Gathering) -> Attempt:
        cloud = self._clouds[attempt.resource.cloud]
        verb = getattr(cloud, FIRST_VERB[attempt.action])
        _log.info("action begun", resource=str(attempt.resource), action=attempt.action.value, attempt=attempt.id, because=attempt.because)
        try:
            verb(attempt.resource)
        except AnswerLost as error:
            _log.warning("answer lost; reading what happened", resource=str(attempt.resource), attempt=attempt.id, because=str(error))
            return self.settler.settle(attempt, gathering)
        except CloudError as error:  # one that never left us, too: a stop that shows soon is somebody else's
            return self.settler.refused(attempt, error)
        if attempt.action.stops or attempt.action in LATER_STEPS:
            taken = f"{FIRST_VERB[attempt.action]} accepted by the cloud"
            evidence = {ACCEPTED: FIRST_VERB[attempt.action]}
            entry = AuditEntry(self._clock.now(), AuditKind.ACCEPTED, attempt.actor, taken, attempt.resource, attempt.action.value, attempt.id, evidence)
            self._store.append_audit(entry)
        return self.settler.settle(attempt, gathering)

    def settle_open(self, gathering: Gathering | None = None) -> tuple[Attempt, ...]:
        """Close what a crash or a slow machine left open, by reading. Never calls a verb."""
        return self.settler.settle_open(gathering)

    def carry_on(self, terms: Terms) -> tuple[Attempt, ...]:
        """The later steps of what has begun."""
        return self._recipes.carry_on(terms)

    # --- starting again -----------------------------------------------------------------------------------------------

    def start_again(
        self, stopped: Attempt, gathering: Gathering, lease: Lease, running: int, actor: str, cause: str = "undo", because: str | None = None
    ) -> Attempt:
        """
        Undo a stop of ours by a start. The same order; nothing is taken away, so guards and breaker do not bind.

        Raises Withdrawn: mode, scope, kill switch (of a start by the clock), budget of starts, "busy" while an action of ours is open, "undo" where the machine is
        not as we left it.
        """
        configuration = gathering.configuration
        if configuration.mode is not Mode.ENFORCE:
            raise Withdrawn("mode", "mode is observe")
        if not configuration.scope.given or "start" not in configuration.scope.verbs:
            raise Withdrawn("scope", "[scope] verbs do not name start")
        brake = self._brakes.engaged() if cause == MORNING_START else None  # a person's own word stands
        if brake is not None:
            raise Withdrawn("kill switch", brake)
        cloud = self._clouds.get(stopped.resource.cloud)
        if cloud is None:
            raise Withdrawn("scope", f"no cloud {stopped.resource.cloud} is configured")
        if any(attempt.resource == stopped.resource for attempt in self._store.attempts(open_only=True)):
            raise Withdrawn("busy", "an earlier action of ours on it is not closed yet")
        at, ran_s = self._clock.now(), self._clock.monotonic()
        try:
            fresh = read(cloud, stopped.resource)
        except CloudError as error:
            raise Withdrawn("fresh read", str(error)) from error
        if not configuration.scope.what.matches(fresh):
            raise Withdrawn("scope", "outside [scope]")
        why = refuse_start(stopped, fresh)
        if why is not None:
            raise Withdrawn("undo", why)
        attempt = Attempt(
            id=f"a-{uuid4().hex[:12]}", resource=stopped.resource, action=Action.START, cause=cause, policy=stopped.policy,
            because=because or f"undo of {stopped.id}", intent_at=self._clock.now(), before=fresh, actor=actor, epoch=lease.epoch, holder=lease.holder,
        )  # fmt: skip
        alone = _Group(frozenset((attempt.resource,)), attempt.intent_at, budgets.asks([(attempt.action, None)]))
        self._in_cycle(configuration, alone)
        self._intend(attempt, configuration, lease, running, alone)
        self._count(attempt.action)
        try:
            self._owe(stopped, attempt)
            self._soon(at, ran_s)
        except Withdrawn as late:
            self.settler.close(attempt, Outcome.ABANDONED, late.because, None)
            raise
        return self._call(attempt, gathering)


def _by_gang(actions: Sequence[PlannedAction]) -> list[list[PlannedAction]]:
    groups: dict[str, list[PlannedAction]] = {}
    for action in actions:
        groups.setdefault(action.gang or str(action.resource), []).append(action)
    return list(groups.values())
