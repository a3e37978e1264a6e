"""
Starts that we owe: of machines that we stopped, asked for, and not yet running with their agent back.

An owed start is kept before its first try, is tried again for as long as its window lasts, with a pace that fits what it met
(no capacity, a quota, a key, the cloud itself), and ends when the machine runs and its agent reports every GPU. Late is said
once; so is giving up. It is discharged once, whatever happens to the machine afterwards.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from reaper import log
from reaper.decide.correlate import readable
from reaper.decide.facts import Morning
from reaper.decide.mornings import ready_at
from reaper.decide.schedule import spell
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Action
from reaper.model.kinds.instance import AT_REST, Hindrance, InstanceState
from reaper.model.plan import Attempt, Outcome, PlannedAction
from reaper.model.policy import MORNING_START, Configuration, Mode, owner_of
from reaper.model.resource import ResourceId
from reaper.ports import Clock, Lease, Message, Store
from reaper.service import mornings
from reaper.service.announce import Announcer
from reaper.service.execute import Executor, Withdrawn
from reaper.service.gather import Gathering
from reaper.service.settle import OWED_START
from reaper.service.watch import Watch

_log = log.get(__name__)

_FACT = "owed-starts"

WINDOW = timedelta(hours=24)
"""How long a start that a person asked for is tried. One for a schedule is, until its hours end."""

LATE_AFTER = timedelta(minutes=15)
"""A GPU machine and its agent are back within minutes; after this whoever waits for it is told."""

# The first pause and the longest: capacity comes and goes by the minute, a quota or a key waits for a person.
_PACE = {
    Hindrance.CAPACITY: (timedelta(minutes=1), timedelta(minutes=15)),
    Hindrance.CLOUD: (timedelta(minutes=1), timedelta(minutes=15)),
    Hindrance.QUOTA: (timedelta(minutes=10), timedelta(hours=1)),
    Hindrance.KEY: (timedelta(minutes=10), timedelta(hours=1)),
}


@dataclass(frozen=True, slots=True)
class Owed:
    """
    ``stop``: the stop of ours that it undoes; ``attempt``: the newest try; ``next_at``: when the next may be made, None while
    one is open; ``tries``: made so far; ``met``: what the last one met; ``late_told``: whether people know that it is late.
    """

    resource: str
    stop: str
    since: datetime
    until: datetime
    who: str
    attempt: str
    tries: int = 1
    next_at: datetime | None = None
    met: str | None = None
    late_told: bool = False
    cause: str = "undo"


def read(store: Store) -> dict[str, Owed]:
    """By resource id."""
    text = store.fact(_FACT)
    found = {}
    for item in json.loads(text) if text is not None else ():
        moments = {key: datetime.fromisoformat(item[key]) if item[key] is not None else None for key in ("since", "until", "next_at")}
        owed = Owed(**{**item, **moments})
        found[owed.resource] = owed
    return found


def write(store: Store, owed: Mapping[str, Owed]) -> None:
    items = [{key: value.isoformat() if isinstance(value, datetime) else value for key, value in asdict(one).items()} for one in owed.values()]
    store.set_facts({_FACT: json.dumps(items) if items else None})


def starting(store: Store) -> frozenset[ResourceId]:
    """Machines whose start is on its way."""
    return frozenset(ResourceId.parse(resource) for resource in read(store))


class OwedStarts:
    def __init__(self, store: Store, watch: Watch, executor: Executor, announcer: Announcer, clock: Clock) -> None:
        self._store, self._watch, self._executor, self._announcer, self._clock = store, watch, executor, announcer, clock
        self._morning: Morning | None = None  # the one for which a start is begun just now
        executor.on_start(self._owe)

    def _owe(self, stopped: Attempt, attempt: Attempt) -> None:
        """Kept between the intent and the call, so that a crash in between leaves what is owed."""
        now, known = attempt.intent_at, read(self._store)
        before = known.get(str(stopped.resource))
        if before is not None and before.stop == stopped.id:
            owed = replace(before, attempt=attempt.id, tries=before.tries + 1, next_at=None)
        else:
            until = self._morning.until if self._morning is not None and self._morning.until is not None else now + WINDOW
            owed = Owed(str(stopped.resource), stopped.id, now, until, attempt.actor, attempt.id, cause=attempt.cause)
        write(self._store, {**known, owed.resource: owed})
        if self._morning is not None:
            mornings.handle(self._store, stopped.resource, self._morning, now)

    def begin(self, planned: Sequence[PlannedAction], gathering: Gathering, lease: Lease, running: int) -> tuple[Attempt, ...]:
        """The first try of starts that a schedule is owed, in the plan's order. What the budget leaves for later is planned again."""
        begun: list[Attempt] = []
        for action in planned:
            morning = gathering.mornings.get(action.resource)
            stopped = self._store.attempt(morning.stop) if morning is not None else None
            if morning is None or stopped is None:
                continue
            self._morning = morning
            try:
                begun.append(self._executor.start_again(stopped, gathering, lease, running, "reaper", MORNING_START, action.because))
            except Withdrawn as why:
                if why.by == "budget":
                    break  # whoever comes later in the order has to wait as well
                if why.by == "undo":
                    self.refuse(action.resource, morning, why.because, stopped, gathering.configuration)
                _log.info("morning start waits", resource=str(action.resource), by=why.by, because=why.because)
            finally:
                self._morning = None
        return tuple(begun)

    def refuse_touched(self, gathering: Gathering) -> None:
        """What is not started because somebody touched it, told once, when its start would have begun."""
        for resource, morning in gathering.mornings.items():
            stopped = self._store.attempt(morning.stop) if morning.refused is not None and self._clock.now() >= morning.begins_at else None
            if stopped is not None and morning.refused is not None:
                self.refuse(resource, morning, morning.refused, stopped, gathering.configuration)

    def refuse(self, resource: ResourceId, morning: Morning, because: str, stopped: Attempt, configuration: Configuration) -> None:
        mornings.handle(self._store, resource, morning, self._clock.now())
        owed = Owed(str(resource), stopped.id, self._clock.now(), morning.ready_at, "reaper", stopped.id, cause=MORNING_START)
        self._tell("failed", owed, stopped, f"not started for hours {morning.hours}: {because}", configuration)

    def step(self, gathering: Gathering, lease: Lease, running: int) -> tuple[Attempt, ...]:
        """Once a cycle: what is back is discharged, what failed is tried again when it is time. The new tries."""
        known = read(self._store)
        tried: list[Attempt] = []
        for owed in tuple(known.values()):
            resource = ResourceId.parse(owed.resource)
            attempt = self._store.attempt(owed.attempt)
            now = self._clock.now()
            if attempt is None or self._back(resource, attempt, gathering):
                self._learn(attempt)
                runs = "it runs and its agent is back" if self._watch.voice(resource) is not None else "it runs; it has no agent"
                self._discharge(owed, attempt, runs if attempt is not None else "its try is not known any more")
                continue
            if now >= owed.until:
                self._give_up(owed, attempt, f"not running with its agent back within {owed.until - owed.since}", gathering)
                continue
            if not owed.late_told and now - owed.since >= LATE_AFTER:
                owed = self._late(owed, attempt, gathering)
            if attempt.outcome in (None, Outcome.DONE):
                continue  # on its way, or running and its agent not back yet
            again = self._again(owed, attempt, gathering, lease, running)
            if again is not None:
                tried.append(again)
        return tuple(tried)

    def _again(self, owed: Owed, attempt: Attempt, gathering: Gathering, lease: Lease, running: int) -> Attempt | None:
        met = Hindrance.CLOUD if attempt.outcome is Outcome.ABANDONED else attempt.hindrance  # never sent: nothing speaks against it
        pace = _PACE.get(met) if met is not None else None
        if pace is None:
            self._give_up(owed, attempt, attempt.detail or "no reason given", gathering)
            return None
        if owed.next_at is None:
            wait = min(pace[0] * 2 ** min(owed.tries - 1, 10), pace[1])
            owed = replace(owed, next_at=(attempt.outcome_at or attempt.intent_at) + wait, met=attempt.detail)
            self._keep(owed)
            self._executor.settler.mirror(attempt.resource, {OWED_START: owed.until.isoformat(timespec="seconds")})
        if owed.next_at is None or self._clock.now() < owed.next_at:
            return None
        stopped = self._store.attempt(owed.stop)
        if stopped is None:
            self._discharge(owed, attempt, "the stop that it undoes is not known any more")
            return None
        if owed.cause == MORNING_START and not self._still_by_the_clock(owed, attempt, stopped, gathering):
            return None
        if attempt.after is not None and attempt.after.state in AT_REST:
            # it fell back after our own start: that is how we left it
            left = attempt.after
            stopped = replace(stopped, after=left, before=replace(stopped.before, launched_at=left.launched_at))
        try:
            because = f"tried again for its hours, after {owed.tries} tries" if owed.cause == MORNING_START else None
            return self._executor.start_again(stopped, gathering, lease, running, owed.who, owed.cause, because)
        except Withdrawn as why:
            if why.by == "undo":
                self._give_up(owed, attempt, why.because, gathering)
            else:
                _log.info("owed start waits", resource=owed.resource, by=why.by, because=why.because)
            return None

    def _still_by_the_clock(self, owed: Owed, attempt: Attempt, stopped: Attempt, gathering: Gathering) -> bool:
        """
        Whether policy and hours want it as they are now. Of hours that were edited since they want it while they run; before they
        begin it is planned anew, and what is under none any more stays stopped.
        """
        resource, now = stopped.resource, self._clock.now()
        if gathering.instance(resource) is None:
            return True  # the fresh read tells what became of it
        policy, hours = gathering.facts(resource, now).policy, gathering.hours_of(resource)
        if policy is None or policy.mode is not Mode.ENFORCE:
            _log.info("owed start waits", resource=owed.resource, by="mode", because="no policy that enforces matches it")
            return False
        if hours is None or not hours.schedule.starts:
            self._give_up(owed, attempt, "no hours want it back any more", gathering)
            return False
        if spell(hours.schedule, now).on:
            return True
        begins, begun_for = ready_at(hours, stopped.intent_at), mornings.handled(self._store, resource)
        if begins is None or begins <= now:
            self._give_up(owed, attempt, f"hours {hours.name} were changed, and those that it was for are over", gathering)
            return False
        if begun_for is None or begins <= begun_for:
            return True  # about to begin
        self._discharge(owed, attempt, f"hours {hours.name} were changed and begin later: it is started then")
        return False

    def _back(self, resource: ResourceId, attempt: Attempt, gathering: Gathering) -> bool:
        """Running, by our start, and its agent reports all GPUs; one that never had an agent or has no GPU only has to run."""
        machine = gathering.instance(resource)
        if attempt.outcome is not Outcome.DONE or machine is None or machine.state is not InstanceState.RUNNING:
            return False
        if machine.gpus == 0 or self._watch.voice(resource) is None:
            return True
        newest = self._watch.newest_verified(resource)
        if newest is None or newest.started_at < attempt.intent_at:
            return False
        expected = machine.gpus if machine.gpus is not None else newest.expected_gpus
        return expected is None or readable(newest) >= expected

    def _learn(self, attempt: Attempt | None) -> None:
        """How long it took this time, so that the next morning it begins early enough."""
        if attempt is None or attempt.outcome_at is None:
            return
        newest = self._watch.newest_verified(attempt.resource)
        back = newest.ended_at if newest is not None and newest.started_at >= attempt.intent_at else attempt.outcome_at
        mornings.learn(self._store, attempt.resource, max(back - attempt.intent_at, timedelta(0)))

    def _keep(self, owed: Owed) -> None:
        write(self._store, {**read(self._store), owed.resource: owed})

    def _discharge(self, owed: Owed, attempt: Attempt | None, because: str) -> None:
        known = read(self._store)
        known.pop(owed.resource, None)
        write(self._store, known)
        self._record(owed, because, {"tries": str(owed.tries)})
        if attempt is not None:
            self._executor.settler.mirror(attempt.resource, {OWED_START: None})
        _log.info("owed start discharged", resource=owed.resource, because=because, tries=owed.tries)

    def _late(self, owed: Owed, attempt: Attempt, gathering: Gathering) -> Owed:
        late = replace(owed, late_told=True)
        self._keep(late)
        because = attempt.detail if attempt.outcome not in (None, Outcome.DONE) and attempt.detail else self._missing(attempt)
        self._tell("late", owed, attempt, f"asked for {LATE_AFTER} ago and not back: {because}; tried until {owed.until:%Y-%m-%d %H:%M %Z}", gathering.configuration)
        return late

    @staticmethod
    def _missing(attempt: Attempt) -> str:
        return "it runs, and its agent has not reported every GPU" if attempt.outcome is Outcome.DONE else "it is still starting"

    def _give_up(self, owed: Owed, attempt: Attempt, because: str, gathering: Gathering) -> None:
        self._discharge(owed, attempt, f"given up: {because}")
        self._tell("failed", owed, attempt, f"not started: {because}", gathering.configuration)

    def _tell(self, event: str, owed: Owed, attempt: Attempt, because: str, configuration: Configuration) -> None:
        policy = next((p for p in configuration.policies if p.name == attempt.policy), None)
        self._record(owed, because, {"event": event})
        message = Message(
            event=event, resource=attempt.resource, name=attempt.before.title, action=Action.START.value, because=because, at=self._clock.now(),
            policy=attempt.policy, owner=owner_of(attempt.before, policy.owner) if policy is not None else None,
        )  # fmt: skip
        self._announcer.send(message, policy.warn.via if policy is not None else ("log",))

    def _record(self, owed: Owed, because: str, evidence: dict[str, str]) -> None:
        entry = AuditEntry(
            self._clock.now(), AuditKind.OUTCOME, owed.who, because, ResourceId.parse(owed.resource), Action.START.value, owed.attempt, evidence
        )
        self._store.append_audit(entry)
