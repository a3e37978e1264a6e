"""From a cycle's result to what the demo tells of it: the table, the news, and what each machine is spared by."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from reaper.demo.director import Director
from reaper.demo.events import Event, Line
from reaper.demo.reasons import Reason, decisive
from reaper.demo.story import Machine
from reaper.model.kinds.instance import InstanceState
from reaper.model.mark import MarkChange, Stage
from reaper.model.plan import Outcome
from reaper.model.policy import Configuration
from reaper.model.resource import ResourceId
from reaper.ports import Clock
from reaper.service.cycle import Cycle, CycleResult, Row

_STAGES = {Stage.NOMINATED: "nominated", Stage.WARNED: "warned", Stage.DUE: "last look"}
_WORDS = {MarkChange.WARNED: "its owner is warned; the countdown runs", MarkChange.DUE: "one more look, and it is stopped"}


@dataclass(frozen=True, slots=True)
class Seen:
    """One cycle, as its own thread left it. ``failed``: why it could not be followed."""

    lines: tuple[Line, ...] = ()
    events: tuple[Event, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    because: Mapping[str, str] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()
    twists_done: bool = False
    failed: str | None = None


class Teller:
    """``ids``: the machines launched so far. Used by the daemon's thread only."""

    def __init__(self, ids: Mapping[ResourceId, Machine], cycle: Cycle, clock: Clock, configuration: Configuration, director: Director) -> None:
        self._ids, self._cycle, self._clock, self._configuration, self._director = ids, cycle, clock, configuration, director
        self._told: dict[str, tuple[str, str]] = {}
        self._stopped_because: dict[str, str] = {}

    def look(self, result: CycleResult) -> Seen:
        """Also lets the director do what comes next."""
        rows = {self._ids[row.decision.resource].name: row for row in result.rows if row.decision.resource in self._ids}
        gathering = self._cycle.gather(self._configuration)
        now = self._clock.now()
        reasons: dict[str, Reason] = {}
        stopped = set()
        for name, row in rows.items():
            facts = gathering.facts(row.decision.resource, now)
            reasons[name] = decisive(facts, now)
            if facts.instance.state in (InstanceState.STOPPED, InstanceState.STOPPING):
                stopped.add(name)
        events = [*self._marks(result), *self._results(result), *self._verdicts(rows, reasons, stopped)]
        events += self._director.see(rows)
        return Seen(
            lines=tuple(self._line(name, row, reasons[name], name in stopped) for name, row in rows.items()),
            events=tuple(events),
            words={name: reason.word for name, reason in reasons.items()},
            because={name: reason.because for name, reason in reasons.items()},
            stopped=frozenset(stopped),
            twists_done=self._director.done,
        )

    def _marks(self, result: CycleResult) -> Iterator[Event]:
        for event in result.events:
            machine = self._ids.get(event.mark.resource)
            if machine is None or event.change is MarkChange.DONE:
                continue
            because = event.because if event.change not in (MarkChange.DUE, MarkChange.WARNED) else _WORDS[event.change]
            yield Event(event.change.value, because, machine.name)

    def _results(self, result: CycleResult) -> Iterator[Event]:
        for item in result.results:
            machine = self._ids.get(item.planned.resource)
            if machine is None or item.attempt is None:
                continue
            outcome = item.attempt.outcome
            self._stopped_because[machine.name] = item.attempt.because
            took = (item.attempt.outcome_at or item.attempt.intent_at) - item.attempt.intent_at
            yield Event(
                "stopped" if outcome is Outcome.DONE else "stopping", item.attempt.because, machine.name,
                {"outcome": outcome.value if outcome is not None else None, "took_s": round(took.total_seconds(), 2)},
            )  # fmt: skip

    def _verdicts(self, rows: Mapping[str, Row], reasons: Mapping[str, Reason], stopped: Collection[str]) -> Iterator[Event]:
        """When the state of a machine, or the word that spares it, is another one than it was."""
        for name, row in rows.items():
            word, state = reasons[name].word, row.decision.state.value
            if self._told.get(name) == (word, state) or name in stopped:
                continue
            self._told[name] = (word, state)
            yield Event("verdict", reasons[name].because, name, {"state": state, "spared_by": word or None})

    def _line(self, name: str, row: Row, reason: Reason, stopped: bool) -> Line:
        machine, mark = self._ids[row.decision.resource], row.candidate.mark
        if stopped:
            return Line(machine, "stopped", "stopped", self._stopped_because.get(name, ""))
        if reason.word:
            return Line(machine, row.decision.state.value, "spared", reason.because)
        verdict = _STAGES[mark.stage] if mark is not None else "watched"
        return Line(machine, row.decision.state.value, verdict, reason.because, row.due_at)
