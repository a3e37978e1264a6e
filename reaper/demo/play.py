"""
The demo, put together: local EC2 API, door, agents, daemon, and the judgement of how it ended.

It ends as soon as all that should stop has stopped and some further cycles have confirmed the rest; at once when a wrong
one stops; and without success at the deadline.
"""

import queue
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from reaper import wiring
from reaper.api.app import App
from reaper.api.server import Server
from reaper.clock import SystemClock
from reaper.config.live import LiveConfiguration
from reaper.decide.budget import price_of
from reaper.demo.agents import Agent
from reaper.demo.director import THEN, WHAT_HAPPENS, Director
from reaper.demo.events import Event, Line, Screen, Summary
from reaper.demo.local_ec2 import LocalEc2, only_local_credentials
from reaper.demo.reasons import Reason, decisive
from reaper.demo.story import STORY, Machine, Twist
from reaper.errors import ReaperError
from reaper.model.kinds.instance import InstanceState
from reaper.model.mark import MarkChange, Stage
from reaper.model.policy import Configuration
from reaper.model.resource import ResourceId
from reaper.service import tokens
from reaper.service.cycle import CycleResult, Row
from reaper.service.daemon import Daemon
from reaper.wiring import Parts

DEADLINE_S = 85.0
CONFIRMED_BY = 3
"""Cycles in a row, after the last stop, in which every other machine is spared for the reason that the story names."""

_FIRST_REPORTS_WITHIN_S = 25.0
_END_WITHIN_S = 20.0
_TICK_S = 0.25
_GONE = ("stopping", "stopped", "shutting-down", "terminated")


def configuration_text(endpoint: str) -> str:
    return files("reaper.demo").joinpath("story.toml").read_text(encoding="utf-8").replace("ENDPOINT", endpoint)


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


def play(screen: Screen, story: tuple[Machine, ...] = STORY, deadline_s: float = DEADLINE_S) -> Summary:
    """
    Run it and judge it. Raises NotInstalled without moto, ReaperError when it cannot even begin; KeyboardInterrupt
    passes. In every case its threads have ended and its folder is gone.
    """
    began = SystemClock().monotonic()
    screen.tell(Event("starting", "a local EC2 API, a report door, a fleet and its agents"), 0.0)
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="reaper-demo-")))
        closing.enter_context(only_local_credentials(folder))
        running = closing.enter_context(_set_up(folder, story, screen, began))
        running.open()
        return _follow(running, screen, story, began, deadline_s)
    raise AssertionError("nothing above swallows an exception")


@contextmanager
def _set_up(folder: Path, story: tuple[Machine, ...], screen: Screen, began: float) -> Iterator["Running"]:
    with ExitStack() as closing:
        ec2 = LocalEc2()
        closing.callback(ec2.close)
        written = folder / "reaper.toml"
        written.write_text(configuration_text(ec2.url))
        live = LiveConfiguration(written)
        parts = wiring.build(live.current()[0], folder / "state")
        closing.callback(parts.store.close)
        app = App(parts.ingest, tokens.Verifier(parts.store), lambda: None, parts.metrics.render, metrics=parts.metrics, clock=parts.clock)
        door = Server(app, port=0)
        door.start()
        closing.callback(door.stop)
        running = Running(story, folder, ec2, parts, live, f"http://127.0.0.1:{door.port}", began, screen)
        closing.callback(running.close)
        yield running


class Running:
    """Everything that runs. ``cycles``: what the daemon's thread saw, for the main thread."""

    def __init__(
        self, story: tuple[Machine, ...], folder: Path, ec2: LocalEc2, parts: Parts, live: LiveConfiguration, door: str, began: float, screen: Screen
    ) -> None:
        self.story, self.ec2, self.parts, self._live, self._door = story, ec2, parts, live, door
        self._folder, self._began, self._screen = folder, began, screen
        self.cycles: queue.Queue[Seen] = queue.Queue()
        self._ids: dict[ResourceId, Machine] = {}
        self._agents: dict[str, Agent] = {}
        self._happened: list[Event] = []
        self._told: dict[str, tuple[str, str]] = {}
        self._stopped_because: dict[str, str] = {}
        self._stop = threading.Event()
        self._director = Director(story, self._twist)
        daemon = Daemon(
            parts.store, parts.watch, parts.cycle, parts.leader, parts.clock, live, parts.metrics, parts.ceiling, seen=self._seen
        )  # fmt: skip
        self._thread = threading.Thread(target=daemon.run, args=(self._stop,), name="daemon", daemon=True)

    @property
    def configuration(self) -> Configuration:
        return self._live.current()[0]

    def resource(self, name: str) -> ResourceId | None:
        return next((resource for resource, machine in self._ids.items() if machine.name == name), None)

    def open(self) -> None:
        """Launch all but the late ones, wait for every agent's first report, and let the daemon begin."""
        for machine in self.story:
            if machine.twist is not Twist.LAUNCHED:
                self._launch(machine)
                self._screen.tell(Event("launched", machine.life, machine.name, {"type": machine.type}), self.elapsed())
        clock = self.parts.clock
        until = clock.monotonic() + _FIRST_REPORTS_WITHIN_S
        quiet = [machine.name for machine in self._ids.values() if machine.act is not None]
        while quiet and clock.monotonic() < until:
            self._stop.wait(0.1)
            quiet = [machine.name for resource, machine in self._ids.items() if machine.act is not None and self.parts.watch.peek(resource) is None]
        if quiet:
            why = "; ".join(line for name in quiet for line in self._agents[name].log.lines[-1:])
            raise ReaperError(f"no report of {', '.join(quiet)} within {_FIRST_REPORTS_WITHIN_S:.0f} s: {why or 'this computer is too slow'}")
        self._thread.start()

    def close(self) -> None:
        """Agents first, while there is still somebody to talk to."""
        for agent in self._agents.values():
            agent.die()
        self._stop.set()
        for agent in self._agents.values():
            agent.join()
        if self._thread.is_alive():
            self._thread.join(_END_WITHIN_S)

    def elapsed(self) -> float:
        return self.parts.clock.monotonic() - self._began

    def _launch(self, machine: Machine) -> None:
        resource = self.ec2.launch(machine)
        self._ids[resource] = machine
        if machine.act is not None:
            token = tokens.issue(self.parts.store, resource, self.parts.clock.now(), "demo")
            self._agents[machine.name] = Agent(machine, resource, self._door, token, self._folder / f"agent-{machine.name}")

    def _twist(self, machine: Machine, twist: Twist) -> None:
        match twist:
            case Twist.LAUNCHED:
                self._launch(machine)
            case Twist.AGENT_DIES:
                self._agents[machine.name].die()
            case _:
                self._agents[machine.name].act(THEN[twist])
        self._happened.append(Event("twist", WHAT_HAPPENS[twist], machine.name, {"twist": twist.value}))

    # --- in the daemon's thread ---

    def _seen(self, result: CycleResult) -> None:
        try:
            seen = self._look(result)
        except Exception as error:  # noqa: BLE001 - it must end the demo with its reason, not the daemon's thread without one
            seen = Seen(failed=f"{type(error).__name__}: {error}")
        self.cycles.put(seen)

    def _look(self, result: CycleResult) -> Seen:
        rows = {self._ids[row.decision.resource].name: row for row in result.rows if row.decision.resource in self._ids}
        configuration = self.configuration
        gathering = self.parts.cycle.gather(configuration)
        now = self.parts.clock.now()
        reasons: dict[str, Reason] = {}
        stopped = set()
        for name, row in rows.items():
            facts = gathering.facts(row.decision.resource, now)
            reasons[name] = decisive(facts, now)
            if facts.instance.state in (InstanceState.STOPPED, InstanceState.STOPPING):
                stopped.add(name)
        self._happened.clear()
        self._director.see(result, rows)
        events = (*self._marks(result), *self._results(result), *self._verdicts(rows, reasons, stopped), *self._happened)
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
                "stopped" if outcome is not None and outcome.value == "done" else "stopping", item.attempt.because, machine.name,
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


_STAGES = {Stage.NOMINATED: "nominated", Stage.WARNED: "warned", Stage.DUE: "last look"}
_WORDS = {MarkChange.WARNED: "its owner is warned; the countdown runs", MarkChange.DUE: "one more look, and it is stopped"}


# --- in the main thread ---------------------------------------------------------------------------------------------------


def _follow(running: Running, screen: Screen, story: tuple[Machine, ...], began: float, deadline_s: float) -> Summary:
    clock = running.parts.clock
    expected = {machine.name for machine in story if machine.stops}
    confirmed, last = 0, Seen()
    while True:
        if clock.monotonic() - began > deadline_s:
            return _judge(running, screen, last, (f"not done within {deadline_s:.0f} s", *_missing(story, last)))
        try:
            seen = running.cycles.get(timeout=_TICK_S)
        except queue.Empty:
            screen.tick(clock.now())
            continue
        if seen.failed is not None:
            return _judge(running, screen, last, (seen.failed,))
        last = seen
        for event in seen.events:
            screen.tell(event, running.elapsed())
        screen.show(seen.lines)
        screen.tick(clock.now())
        if seen.stopped - expected:
            return _judge(running, screen, seen, ())
        confirmed = confirmed + 1 if seen.twists_done and not _missing(story, seen) else 0
        if confirmed >= CONFIRMED_BY:
            return _judge(running, screen, seen, ())


def _missing(story: tuple[Machine, ...], seen: Seen) -> tuple[str, ...]:
    """What is not yet, or not any more, as the story has it."""
    found = []
    for machine in story:
        if machine.stops:
            if machine.name not in seen.stopped:
                found.append(f"{machine.name} should be stopped and runs: {seen.because.get(machine.name, 'never seen')}")
        elif seen.words.get(machine.name) != machine.ends:
            found.append(f"{machine.name} should be spared by {machine.ends!r}: {seen.because.get(machine.name, 'never seen')}")
    return tuple(found)


def _judge(running: Running, screen: Screen, seen: Seen, wrong: tuple[str, ...]) -> Summary:
    """By the EC2 API's own word."""
    states = running.ec2.states()
    stopped = sorted(name for name, state in states.items() if state in _GONE)
    expected = {machine.name for machine in running.story if machine.stops}
    wrong = (
        *wrong,
        *(f"{name} was stopped and should have been spared" for name in stopped if name not in expected),
        *(f"{name} should have been stopped and is {states.get(name, 'not there')}" for name in sorted(expected - set(stopped))),
    )
    types = {machine.name: machine.type for machine in running.story}
    prices = [price_of(types[name], running.configuration.prices) for name in stopped]
    stories = {name: tuple(_story(running, name)) for name in stopped}
    spared = {machine.name: seen.because.get(machine.name, "never seen") for machine in running.story if machine.name not in stopped}
    summary = Summary(
        tuple(stopped), spared, tuple(dict.fromkeys(wrong)), running.elapsed(), sum(p for p in prices if p is not None), stories
    )  # fmt: skip
    screen.finish(summary)
    return summary


def _story(running: Running, name: str) -> Iterator[str]:
    resource = running.resource(name)
    for entry in running.parts.store.audit(resource=resource) if resource is not None else ():
        if entry.kind.value != "token":
            yield f"{entry.at:%H:%M:%S} {entry.kind.value}: {entry.because}"
