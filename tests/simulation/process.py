"""One daemon as a process: the real services over a seat at the store and the cloud. It dies, and another is started."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from reaper.config.live import LiveConfiguration
from reaper.model.policy import Configuration, Mode
from reaper.ports import Message
from reaper.service.announce import Announcer
from reaper.service.board import Board
from reaper.service.brakes import FileBrake
from reaper.service.cycle import Cycle, CycleResult
from reaper.service.daemon import Daemon
from reaper.service.ingest import Ingest
from reaper.service.lead import Leader
from reaper.service.watch import Watch
from tests.simulation.clock import HostClock, SimClock
from tests.simulation.cloud import CloudSeat, SimCloud
from tests.simulation.seats import Crash, Memory, StoreSeat, Trap
from tests.simulation.settings import Settings


class Silent:
    """Metrics nobody reads."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Paper:
    """The configuration file on its way into one process. Read by the real reader whenever its text has changed."""

    def __init__(self, path: Path, settings: Callable[[], Settings]) -> None:
        self._path, self._settings = path, settings
        self._live: LiveConfiguration | None = None
        self._read: Settings | None = None
        self._answer: tuple[Configuration, str | None] | None = None
        self.good: Settings = settings()

    def current(self) -> tuple[Configuration, str | None]:
        """Raises ConfigurationError where even the first text is refused."""
        settings = self._settings()
        if settings is not self._read or self._answer is None:
            self._path.write_text(settings.text())
            self._live = self._live or LiveConfiguration(self._path)
            self._answer = self._live.current()
            self._read = settings
            assert (self._answer[1] is not None) == (settings.broken is not None), self._answer[1]
            if self._answer[1] is None:
                self.good = settings
        return self._answer


class Channel:
    """A channel that may be slow, down, or both. ``took``: what it accepted."""

    def __init__(self, name: str, world: Any) -> None:
        self.name, self._world = name, world

    def send(self, message: Message) -> None:
        """Raises NotDelivered."""
        self._world.on_message(self.name, message)


@dataclass(slots=True)
class Process:
    """``busy``: in the middle of a cycle. ``trap``: what breaks it off, if anything."""

    name: str
    clock: HostClock
    paper: Paper
    watch: Watch
    cycle: Cycle
    daemon: Daemon
    ingest: Ingest
    leader: Leader
    seat: StoreSeat
    trap: Trap | None = None
    armed: bool = False
    busy: bool = False
    alive: bool = True
    result: CycleResult | None = None
    force: Settings | None = None
    began: float = 0.0
    leases: list[tuple[float, Any]] = field(default_factory=list)


def start(world: Any, name: str, true: SimClock, cloud: SimCloud, store: Any, memory: Memory, state: Path, off: float) -> Process:
    """Raises ConfigurationError and StoreError, as `reaper run` would end with."""
    box: dict[str, Process] = {}

    def trap() -> Trap | None:
        process = box.get("it")
        if process is None or not process.armed:
            return None
        if not process.alive:
            raise Crash("killed from outside")
        return process.trap

    def around(label: str, call: Callable[[], object]) -> object:
        now = trap()
        return call() if now is None else now.around(label, call)

    clock = HostClock(true, off)
    paper = Paper(state / f"{name}.toml", lambda: world.settings)
    configuration, _ = paper.current()
    seat: Any = StoreSeat(store, memory, trap, lambda lease: world.on_lease(name, lease))
    watch, board = Watch(seat), Board()
    watch.rebuild(seat, clock.now())
    announcer = Announcer({"log": Channel("log", world), "team": Channel("team", world)})
    skew = lambda: clock.off  # noqa: E731 - nothing to name
    providers = ("aws", "gcp") if world.settings.google else ("aws",)
    clouds = {provider: CloudSeat(provider, cloud, name, around, skew) for provider in providers}
    cycle = Cycle(seat, watch, clouds, announcer, board, clock, FileBrake(state))
    leader = Leader(seat, clock, max(3 * configuration.cycle, timedelta(seconds=30)))
    metrics: Any = Silent()
    daemon = Daemon(seat, watch, cycle, leader, clock, paper, metrics, Mode.ENFORCE)
    box["it"] = Process(name, clock, paper, watch, cycle, daemon, Ingest(seat, watch, board, clock), leader, seat)
    return box["it"]
