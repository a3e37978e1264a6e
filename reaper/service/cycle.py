"""
One cycle: list, look, decide, mark, warn, plan, and only then act. Read this first.

Everything that decides is pure and lives in `decide`; this file fetches, calls it, and
carries the results to the store, to people and to the executor.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import uuid4

from reaper import log
from reaper.decide import budget as budgets
from reaper.decide import lifecycle, planner
from reaper.decide.breaker import Jump
from reaper.decide.engine import decide
from reaper.decide.facts import Facts
from reaper.decide.guards import stop_protected
from reaper.decide.last_look import last_look
from reaper.decide.waste import SHIPPED_ABOVE, IdleGpus, Waste, waste
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Action, Decision, FindingKind, Verdict
from reaper.model.kinds.instance import InstanceState
from reaper.model.mark import Mark, MarkChange, MarkEvent, Stage
from reaper.model.plan import Attempt, Debit, Plan
from reaper.model.policy import Configuration, Mode, Policy, owner_of
from reaper.model.resource import ResourceId
from reaper.model.signal import Activity
from reaper.ports import Brakes, Clock, Cloud, Lease, Message, Store
from reaper.service import announce, closing, hours, mornings
from reaper.service import lost as losses
from reaper.service.board import Board, Notice
from reaper.service.continuity import Continuity
from reaper.service.execute import DEBITS_OF, TAKEN, Executor, Result
from reaper.service.fleet import FleetWatch, read_jumps
from reaper.service.gather import Gathering, read_known
from reaper.service.inventory import Inventory, kept, refresh
from reaper.service.owed import OwedStarts, starting
from reaper.service.recipes import Terms
from reaper.service.unused import unused_gpus
from reaper.service.watch import Watch

_log = log.get(__name__)

MarkKey = tuple[ResourceId, Action]


@dataclass(frozen=True, slots=True)
class Row:
    """
    One machine in one cycle, for whoever shows it. ``due_at``: the earliest; None: stands still or not nominated. ``waste``: of
    one whose jobs wait for their data; ``idle_gpus``: of one that works on some of its GPUs only.
    """

    decision: Decision
    candidate: planner.Candidate
    due_at: datetime | None = None
    waste: Waste | None = None
    idle_gpus: IdleGpus | None = None


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a cycle saw and did. ``configuration_refused``: why the newest configuration is not in force."""

    at: datetime
    took: timedelta
    rows: tuple[Row, ...]
    plan: Plan
    inventory: Inventory
    results: tuple[Result, ...] = ()
    settled: tuple[Attempt, ...] = ()
    events: tuple[MarkEvent, ...] = ()
    jumps: tuple[Jump, ...] = ()
    mode: Mode = Mode.OBSERVE
    configuration_refused: str | None = None
    brake: str | None = None
    budget_left: dict[tuple[str, str], float] = field(default_factory=dict)
    lost: tuple[losses.LostWork, ...] = ()


@dataclass(slots=True)
class _Pass:
    """What one cycle carries from step to step."""

    now: datetime
    gathering: Gathering
    facts: dict[ResourceId, Facts] = field(default_factory=dict)
    decisions: dict[ResourceId, Decision] = field(default_factory=dict)
    marks: dict[MarkKey, Mark] = field(default_factory=dict)
    changed: dict[MarkKey, Mark] = field(default_factory=dict)
    cleared: list[Mark] = field(default_factory=list)
    events: list[MarkEvent] = field(default_factory=list)
    recorded: int = 0  # events that are kept and told already


class Cycle:
    """Runs cycles for one process. Everything it needs is handed in; it starts no thread."""

    def __init__(
        self, store: Store, watch: Watch, clouds: Mapping[str, Cloud], announcer: announce.Announcer, board: Board, clock: Clock, brakes: Brakes
    ) -> None:
        self._store, self._watch, self._clouds, self._announcer = store, watch, clouds, announcer
        self._board, self._clock, self._brakes = board, clock, brakes
        self._continuity = Continuity(store)
        self._fleet = FleetWatch(store)
        self._inventory: Inventory | None = None
        self._marks: dict[MarkKey, Mark] = {}
        self.executor = Executor(store, clouds, clock, brakes, lambda: self._marks)
        self._owed = OwedStarts(store, watch, self.executor, announcer, clock)

    def run(self, configuration: Configuration, lease: Lease, refused: str | None = None) -> CycleResult:
        """
        One whole cycle, for whoever leads. ``refused``: why the newest configuration is not in force; ``configuration``
        is then the last good one, and nothing is taken away.
        """
        began = self._clock.monotonic()
        lost = losses.step(self._store, configuration, self._announcer, self._clock.now())
        written, configuration = configuration, losses.in_effect(configuration, self._store)
        self._announcer.follow(configuration)
        self.executor.begin_cycle()
        this = self._begin(configuration, fetch=True)
        self._watch.catch_up(self._store, this.now)  # a standby's door takes reports too
        settled = self.executor.settle_open(this.gathering)
        this.gathering.known = read_known(self._store, this.now)
        if this.gathering.kept_protections or this.gathering.dropped_protections:
            self._store.save_seen_protections(this.gathering.kept_protections, this.gathering.dropped_protections)
        self._begin_anew(this, configuration, lease)
        self._decide(this)
        jumps = self._fleet.step(this.facts, this.decisions, configuration, this.now)
        self._move_marks(this, configuration, lease)
        closing.tell(self._store, self._announcer, this.facts, this.decisions, configuration, this.now)
        rows = self._rows(this, configuration)
        notes = (*losses.notes(written, self._store), *self._hours_notes(this, configuration, keep=True))
        plan = self._plan(this, rows, configuration, jumps, refused, notes)
        self._publish(rows, this, configuration)
        results = self._carry_out(plan, this, lease, jumps, configuration)
        for attempt in self.executor.carry_on(Terms(this.gathering, lease, jumps, refused)):
            if attempt.outcome is not None:
                self._tell_result(attempt, this, configuration)
                settled += (attempt,)
        running = running_in_scope(this.gathering, configuration)
        settled += self._owed.step(this.gathering, lease, running)
        if configuration.mode is Mode.ENFORCE:
            self._owed.refuse_touched(this.gathering)
            self._owed.begin([action for action in plan.actions if action.action is Action.START], this.gathering, lease, running)
        self._continuity.remember(configuration, self._clock.now())
        return self._result(began, this, rows, plan, configuration, jumps=jumps, results=results, settled=settled, refused=refused, lost=lost)

    def preview(self, configuration: Configuration, *, fetch: bool) -> CycleResult:
        """
        What a cycle would decide now, with the marks as they stand. It moves no mark, tells nobody and acts on nothing.

        ``fetch``: list the clouds; else the newest kept listing is used.
        """
        began = self._clock.monotonic()
        written, configuration = configuration, losses.in_effect(configuration, self._store)
        this = self._begin(configuration, fetch=fetch)
        self._decide(this)
        rows = self._rows(this, configuration)
        jumps = read_jumps(self._store)
        notes = (*losses.notes(written, self._store), *self._hours_notes(this, configuration, keep=False))
        plan = self._plan(this, rows, configuration, jumps, None, notes)
        return self._result(began, this, rows, plan, configuration, jumps=jumps)

    def _begin(self, configuration: Configuration, *, fetch: bool) -> _Pass:
        before = self._inventory or kept(self._store)
        self._inventory = refresh(tuple(self._clouds.values()), self._store, self._clock.now(), before) if fetch else before
        now = self._clock.now()
        gathering = Gathering(self._inventory, read_known(self._store, now), self._watch, configuration, now)
        return _Pass(now, gathering, marks=self._store.marks())

    def _result(
        self, began: float, this: _Pass, rows: Sequence[Row], plan: Plan, configuration: Configuration, *, jumps: Sequence[Jump],
        results: tuple[Result, ...] = (), settled: tuple[Attempt, ...] = (), refused: str | None = None, lost: tuple[losses.LostWork, ...] = (),
    ) -> CycleResult:  # fmt: skip
        left = budgets.left(configuration.budgets, self._debits(), self._clock.now(), running_in_scope(this.gathering, configuration))
        return CycleResult(
            at=this.now, took=timedelta(seconds=self._clock.monotonic() - began), rows=tuple(rows), plan=plan,
            inventory=self._inventory or Inventory(), results=results, settled=settled, events=tuple(this.events), jumps=tuple(jumps),
            mode=configuration.mode, configuration_refused=refused, brake=self._brakes.engaged(),
            budget_left=left, lost=lost,
        )  # fmt: skip

    def brake(self) -> str | None:
        """Why nothing may be taken away now. Whoever waits for the lease asks as well, so that its own switch is known to who leads."""
        return self._brakes.engaged()

    def gather(self, configuration: Configuration) -> Gathering:
        """Facts over the newest listing of this process, else the kept one."""
        now, configuration = self._clock.now(), losses.in_effect(configuration, self._store)
        return Gathering(self._inventory or kept(self._store), read_known(self._store, now), self._watch, configuration, now)

    def apply(self, plan: Plan, gathering: Gathering, lease: Lease, running: int, who: str) -> tuple[Result, ...]:
        """Carry out what a person approved, through the same gates: what is no longer due or idle is withdrawn."""
        self._marks = self._store.marks()
        stops = [action for action in plan.actions if action.action is not Action.START]
        results = self.executor.carry_out(plan.id, stops, gathering, lease, read_jumps(self._store), running, who)
        self._unmark(results)
        return results

    def _unmark(self, results: Sequence[Result]) -> list[Mark]:
        begun = [(r.planned.resource, r.planned.action) for r in results if r.attempt is not None]
        done = [self._marks.pop(key) for key in begun if key in self._marks]
        if done:
            self._store.save_marks((), done, ())
        return done

    def _debits(self) -> tuple[Debit, ...]:
        since = self._clock.now() - DEBITS_OF
        return tuple(debit for action in TAKEN for debit in self._store.debits(action, since))

    def _begin_anew(self, this: _Pass, configuration: Configuration, lease: Lease) -> None:
        """
        After a discontinuity every mark is cleared, so that people are warned again. At once and before the new mode is
        kept: whatever breaks off after this, no mark outlives what it was made under.
        """
        why = self._continuity.broken(configuration, this.now)
        if why is not None:
            _log.warning("discontinuity", because=why, marks_cleared=len(this.marks))
            told = AuditEntry(this.now, AuditKind.DISCONTINUITY, "reaper", why, evidence={"marks": str(len(this.marks))})
            gone = [MarkEvent(mark, MarkChange.CLEARED, why) for mark in this.marks.values()]
            self._store.save_marks((), tuple(this.marks.values()), (told, *(self._entry(event, this) for event in gone)), lease)
            this.marks = {}
            for event in gone:
                this.events.append(event)
                self._tell(event, this, configuration)
        this.recorded = len(this.events)
        self._continuity.begin(configuration, this.now)

    def _decide(self, this: _Pass) -> None:
        """Every machine; the costly read only for those that nothing else holds back."""
        this.gathering.mornings = mornings.read(self._store, this.gathering, this.now, starting(self._store))
        for instance in this.gathering.instances:
            facts = this.gathering.facts(instance.id, this.now)
            decision = decide(facts, this.now)
            this.facts[instance.id] = facts
            objections = {finding.because for finding in decision.objections if decision.cause not in finding.exempts}
            if decision.verdict is Verdict.WAIT and objections == {stop_protected.UNREAD}:
                cloud = self._clouds.get(instance.id.cloud)
                if cloud is not None:
                    facts = this.facts[instance.id] = replace(facts, protections=cloud.protections(instance.id))
                    decision = decide(facts, this.now)
            for finding in decision.findings:
                if finding.error is not None:
                    _log.error("rule failed", rule=finding.rule, resource=str(instance.id), error=finding.error)
            this.decisions[instance.id] = decision

    def _move_marks(self, this: _Pass, configuration: Configuration, lease: Lease) -> None:
        """Advance, warn, save: one transaction with the audit entries of every change."""
        marked = {resource for resource, _ in this.marks}
        for resource in marked - this.decisions.keys():
            for key in [key for key in this.marks if key[0] == resource]:
                mark = this.marks.pop(key)
                this.cleared.append(mark)
                this.events.append(MarkEvent(mark, MarkChange.CLEARED, "the machine is gone"))
        for resource, decision in this.decisions.items():
            if decision.cause is None and resource not in marked:
                continue
            self._move_one(this, resource, decision, configuration)
        moved = this.events[this.recorded :]
        entries = [self._entry(event, this) for event in moved]
        if this.changed or this.cleared or entries:
            self._store.save_marks(tuple(this.changed.values()), tuple(this.cleared), entries, lease)
        self._marks = this.marks
        for event in moved:
            self._tell(event, this, configuration)

    def _tell(self, event: MarkEvent, this: _Pass, configuration: Configuration) -> None:
        mark = event.mark
        _log.info(f"mark {event.change}", resource=str(mark.resource), action=mark.action.value, policy=mark.policy, because=event.because)
        if event.change is MarkChange.CLEARED and mark.stage is not Stage.NOMINATED:
            self._tell_cleared(event, this, configuration)

    def _move_one(self, this: _Pass, resource: ResourceId, decision: Decision, configuration: Configuration) -> None:
        policy = this.facts[resource].policy
        for key in [key for key in this.marks if key[0] == resource and key[1] is not decision.action]:
            mark = this.marks.pop(key)
            this.cleared.append(mark)
            this.events.append(MarkEvent(mark, MarkChange.CLEARED, decision.because))
        key = (resource, decision.action)
        old = this.marks.pop(key, None)
        step = lifecycle.advance(old, decision, policy, this.now, configuration.cycle)
        this.events += step.events
        mark_now = step.mark
        if mark_now is not None and step.warn and policy is not None:
            mark_now = self._warn(this, mark_now, policy, configuration)
        if mark_now is not None:
            this.marks[key] = this.changed[key] = mark_now
        elif old is not None:
            this.cleared.append(old)

    def _warn(self, this: _Pass, mark: Mark, policy: Policy, configuration: Configuration) -> Mark:
        """In observe the audit entry is the warning, and nobody is told."""
        instance = this.gathering.instance(mark.resource)
        if configuration.mode is not Mode.ENFORCE or policy.mode is not Mode.ENFORCE or instance is None:
            via: str | None = "audit"
        else:
            due_at = lifecycle.earliest(replace(mark, stage=Stage.WARNED), policy, this.now)
            newest, decision = this.facts[mark.resource].newest, this.decisions[mark.resource]
            message = announce.warning(mark, instance, policy, due_at, this.now, newest, decision.findings)
            via = self._announcer.send(message, policy.warn_for(mark.cause).via)
        if via is None:
            _log.warning("no channel accepted the warning", resource=str(mark.resource), via=list(policy.warn.via))
            return mark
        warned, event = lifecycle.accepted(mark, this.now, via)
        this.events.append(event)
        return warned

    def _tell_cleared(self, event: MarkEvent, this: _Pass, configuration: Configuration) -> None:
        instance = this.gathering.instance(event.mark.resource)
        policy = next((p for p in configuration.policies if p.name == event.mark.policy), None)
        if policy is None or policy.mode is not Mode.ENFORCE or configuration.mode is not Mode.ENFORCE:
            return
        self._announcer.send(announce.news("cleared", event.mark, instance, policy, event.because, this.now), policy.warn.via)

    def _entry(self, event: MarkEvent, this: _Pass) -> AuditEntry:
        mark = event.mark
        evidence = {"policy": mark.policy, "cause": mark.cause}
        if event.change is MarkChange.WARNED:
            evidence["via"] = mark.warned_via or ""
        decision = this.decisions.get(mark.resource)
        if decision is not None and event.change is MarkChange.NOMINATED:
            for finding in decision.findings:
                if finding.kind is FindingKind.NOMINATE:
                    evidence |= {"value": finding.value or "", "limit": finding.limit or ""}
        if decision is not None and event.change in (MarkChange.NOMINATED, MarkChange.WARNED):
            noted = "; ".join(finding.because for finding in decision.findings if finding.kind is FindingKind.NOTE)
            evidence |= {"noted": noted} if noted else {}
        kind = AuditKind(event.change.value) if event.change is not MarkChange.DONE else AuditKind.CLEARED
        return AuditEntry(this.now, kind, "reaper", event.because, mark.resource, mark.action.value, evidence=evidence)

    def _rows(self, this: _Pass, configuration: Configuration) -> list[Row]:
        rows = []
        for resource, decision in this.decisions.items():
            facts = this.facts[resource]
            policy = facts.policy
            mark = this.marks.get((resource, decision.action))
            look: str | None = None
            due_at = None
            if mark is not None and policy is not None:
                observe = configuration.mode is not Mode.ENFORCE or policy.mode is not Mode.ENFORCE
                look = last_look(mark, facts, this.now, observe=observe)
                due_at = lifecycle.earliest(mark, policy, this.now)
                decision = lifecycle.preferred(mark, decision, policy, this.now)
            place = facts.morning.place if facts.morning is not None else 0
            candidate = planner.Candidate(facts.instance, decision, policy, mark, facts.gang, look, place)
            wasted, unused = None, None
            if decision.state.activity is Activity.BUSY:  # GPUs that compute now and then wait as well
                above = policy.starved_above if policy is not None else SHIPPED_ABOVE
                price = budgets.price_of(facts.instance.type, configuration.prices, facts.instance.hourly_usd)
                wasted = waste(facts.newest, above, price)
                unused = unused_gpus(facts, self._watch, price)
            rows.append(Row(decision, candidate, due_at, wasted, unused))
        return rows

    def _plan(
        self, this: _Pass, rows: Sequence[Row], configuration: Configuration, jumps: Sequence[Jump], refused: str | None, notes: Sequence[str]
    ) -> Plan:
        stopped_by = ("configuration", f"the newest configuration is refused: {refused}") if refused is not None else None
        brake = self._brakes.engaged()
        if brake is not None:
            stopped_by = ("brake", brake)
        debits = self._debits()
        plan = planner.make(
            f"p-{this.now:%Y%m%dT%H%M%S}-{uuid4().hex[:6]}", this.now, configuration, [row.candidate for row in rows], debits,
            running_in_scope(this.gathering, configuration), jumps, stopped_by,
            self._store.debits(Action.START, self._clock.now() - DEBITS_OF),
        )  # fmt: skip
        plan = replace(plan, notes=(*notes, *plan.notes))
        self._store.save_plan(plan)
        return plan

    def _hours_notes(self, this: _Pass, configuration: Configuration, *, keep: bool) -> tuple[str, ...]:
        """Schedules that cannot be read, and what an edited one does first."""
        under = Counter(facts.policy.hours.name for facts in this.facts.values() if facts.policy is not None and facts.policy.hours is not None)
        said = hours.edited(self._store, configuration, under, this.now, keep=keep)
        return (*hours.notes(configuration, this.gathering.instances), *said)

    def _publish(self, rows: Sequence[Row], this: _Pass, configuration: Configuration) -> None:
        """What the people on the machines should know; nothing in observe, where nothing will happen."""
        notices: dict[ResourceId, Notice] = {}
        for row in rows:
            mark, policy = row.candidate.mark, row.candidate.policy
            enforced = configuration.mode is Mode.ENFORCE and policy is not None and policy.mode is Mode.ENFORCE
            if mark is not None and enforced and mark.stage is not Stage.NOMINATED:
                notices[mark.resource] = Notice(mark.action.value, row.due_at, mark.because)
        self._board.publish(notices, {r: max(s.until for s in this.gathering.snoozes_of(r)) for r in this.gathering.known.snoozes})

    def _carry_out(self, plan: Plan, this: _Pass, lease: Lease | None, jumps: Sequence[Jump], configuration: Configuration) -> tuple[Result, ...]:
        stops = [action for action in plan.actions if action.action is not Action.START]
        if lease is None or configuration.mode is not Mode.ENFORCE or not stops:
            return ()
        running = running_in_scope(this.gathering, configuration)
        results = self.executor.carry_out(plan.id, stops, this.gathering, lease, jumps, running)
        for mark in self._unmark(results):
            this.events.append(MarkEvent(mark, MarkChange.DONE, "carried out"))
        for result in results:
            if result.attempt is not None:
                self._tell_result(result.attempt, this, configuration)
        return results

    def _tell_result(self, attempt: Attempt, this: _Pass, configuration: Configuration) -> None:
        policy = next((p for p in configuration.policies if p.name == attempt.policy), None)
        via = policy.warn.via if policy is not None else ("log",)
        outcome = attempt.outcome.value if attempt.outcome is not None else "begun"
        message = Message(
            event=outcome, resource=attempt.resource, name=attempt.before.title, action=attempt.action.value,
            because=attempt.detail or attempt.because, at=self._clock.now(), policy=attempt.policy,
            owner=owner_of(attempt.before, policy.owner) if policy is not None else None,
        )  # fmt: skip
        self._announcer.send(message, via)


def running_in_scope(gathering: Gathering, configuration: Configuration) -> int:
    """What shares of a budget are taken of."""
    return sum(1 for i in gathering.instances if i.state is InstanceState.RUNNING and configuration.scope.what.matches(i))
