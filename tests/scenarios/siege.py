"""
A world under attack: the daemon with its own error handling, a store and a cloud that break at a chosen call, and a
witness that looks at every stop as it arrives.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from reaper.config.live import LiveConfiguration
from reaper.metrics import Metrics
from reaper.model.mark import Stage
from reaper.model.policy import Configuration, IdleTerms, Mode, Warn
from reaper.model.resource import ResourceId
from reaper.service.announce import Announcer
from reaper.service.board import Board
from reaper.service.brakes import FileBrake
from reaper.service.cycle import Cycle, CycleResult
from reaper.service.daemon import Daemon
from reaper.service.lead import Leader
from reaper.service.watch import Watch
from tests.scenarios.world import MINUTE, World, configuration, policy

WAIT = timedelta(minutes=2)
IDLE = timedelta(minutes=3)
HELD = timedelta(minutes=6)


class Crash(BaseException):
    """The process dies here."""


def quick(**fields: Any) -> Configuration:
    """Terms of minutes, so that a whole life costs a dozen cycles. Fields of the policy go in ``policy``."""
    terms = {"idle": IdleTerms(IDLE, 0.05, HELD), "warn": Warn(WAIT), "min_age": MINUTE} | fields.pop("policy", {})
    return configuration(policy(**terms), **fields)


@dataclass
class Fault:
    """Something that happens once, at the ``at``-th call while armed, ``after`` that call took effect or before."""

    strike: Callable[[], None]
    at: int
    after: bool = False
    armed: bool = False
    calls: list[str] = field(default_factory=list)
    struck: bool = False

    def around(self, name: str, call: Callable[[], Any]) -> Any:
        if not self.armed or self.struck:
            return call()
        self.calls.append(name)
        here = len(self.calls) == self.at
        if here and not self.after:
            self.struck = True
            self.strike()
        answer = call()
        if here and self.after:
            self.struck = True
            self.strike()
        return answer


class Through:
    """Every method of ``inner``, through the fault that is set, if any."""

    def __init__(self, inner: Any, name: str, fault: Callable[[], Fault | None]) -> None:
        self._inner, self._name, self._fault = inner, name, fault

    def __getattr__(self, key: str) -> Any:
        found = getattr(self._inner, key)
        if not callable(found):
            return found

        def through(*args: Any, **named: Any) -> Any:
            fault = self._fault()
            call = lambda: found(*args, **named)  # noqa: E731 - nothing to name
            return call() if fault is None else fault.around(f"{self._name}.{key}", call)

        return through


class Siege(World):
    """``fault``: breaks the store or the cloud while the daemon cycles. ``stops``: every stop that arrived, as the witness saw it."""

    def __init__(self, state: Path, config: Configuration | None = None) -> None:
        self.fault: Fault | None = None
        self.stops: list[ResourceId] = []
        self.ceiling = Mode.ENFORCE
        super().__init__(state, config if config is not None else quick())
        self.cloud.before = self._witness

    def _witness(self, method: str, resource: ResourceId | None) -> None:
        if method != "stop" or resource is None:
            return
        self.stops.append(resource)
        told = [m for m in self.channel.told("warned") if m.resource == resource]
        assert told, f"{resource} was stopped and nobody was warned"
        assert self.clock.now() - told[-1].at >= WAIT, f"{resource} was stopped {self.clock.now() - told[-1].at} after its warning"
        life = next(life for life in self.lives.values() if life.id == resource)
        assert not callable(life.load), "the witness reads fixed loads"
        assert life.load == 0.0, f"{resource} was stopped at work"

    def _start(self) -> None:
        store: Any = Through(self.store, "store", lambda: self.fault)
        cloud: Any = Through(self.cloud, "cloud", lambda: self.fault)
        self.watch = Watch(self.store)
        self.watch.rebuild(self.store, self.clock.now())
        self.board = Board()
        self.cycle = Cycle(store, self.watch, {"aws": cloud}, Announcer({"log": self.channel}), self.board, self.clock, FileBrake(self.state))
        self.leader = Leader(store, self.clock, timedelta(minutes=3))
        self.daemon = Daemon(store, self.watch, self.cycle, self.leader, self.clock, self, Metrics(), self.ceiling)

    def current(self) -> tuple[Configuration, str | None]:
        """As the daemon's source of configuration."""
        return self.config, self.refused

    def follow(self, live: LiveConfiguration) -> None:
        self.config, self.refused = live.current()

    @contextmanager
    def _armed(self) -> Iterator[None]:
        if self.fault is not None:
            self.fault.armed = True
        try:
            yield
        finally:
            if self.fault is not None:
                self.fault.armed = False

    def minute(self) -> None:
        """A minute of everybody's life, up to the moment at which the daemon cycles."""
        up, self.daemon_up = self.daemon_up, False
        super().tick()
        self.daemon_up = up

    def tick(self) -> CycleResult | None:
        self.minute()
        return self.cycle_once() if self.daemon_up else None

    def cycle_once(self) -> CycleResult | None:
        with self._armed():
            result = self.daemon.once(self.daemon.bounded(), self.refused)
        if result is not None:
            self.results.append(result)
        return result

    def until_due(self, *natives: str) -> None:
        """Every mark is due and the next cycle acts on it."""
        names = natives or tuple(self.lives)

        def all_due() -> bool:
            marks = [self.mark(native) for native in names]
            return all(mark is not None and mark.stage is Stage.DUE for mark in marks)

        self.run(20, all_due)
        self.run(1)  # a report whose window began after due comes a minute later
        assert all_due(), "they never became due: the test shows nothing"

    def outcomes(self, native: str) -> list[str]:
        """Newest first."""
        return [str(a.outcome) for a in self.store.attempts(resource=self.lives[native].id)]

    def again(self) -> "Siege":
        """The same world at the same moment, to be attacked another way; its past is copied instead of lived through again."""
        other = Siege(self.state, self.config)
        with ExitStack() as stack:
            ours, theirs = (stack.enter_context(closing(each._engine.raw_connection())) for each in (self.store, other.store))  # type: ignore[attr-defined]
            ours.driver_connection.backup(theirs.driver_connection)
        other.clock.__dict__.update(self.clock.__dict__)
        for name in ("machines", "places", "stop_protected", "calls", "_turning"):
            setattr(other.cloud, name, copy(getattr(self.cloud, name)))
        other.channel.messages[:] = self.channel.messages
        other.lives = deepcopy(self.lives)
        other.restart()
        other.leader._holder = self.leader._holder
        return other

    def aloof(self) -> "Siege":
        """A second daemon over the same store and cloud, with its own memory, door and leadership."""
        other = Siege.__new__(Siege)
        for name in ("state", "clock", "cloud", "channel", "lives", "config", "refused", "daemon_up", "store", "stops", "ceiling"):
            setattr(other, name, getattr(self, name))
        other.fault, other.results = None, []
        other._start()
        return other
