"""Everything that runs in the demo: local clouds, door, agents, daemon; opened and closed in order."""

import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from reaper import wiring
from reaper.api.app import App
from reaper.api.server import Server
from reaper.config.live import LiveConfiguration
from reaper.demo.agents import Agent
from reaper.demo.director import THEN, Director
from reaper.demo.events import Event, Screen
from reaper.demo.local_ec2 import LocalEc2
from reaper.demo.local_google import LocalGoogle
from reaper.demo.story import Machine, Twist
from reaper.demo.telling import Seen, Teller
from reaper.errors import ReaperError
from reaper.model.policy import Configuration
from reaper.model.resource import ResourceId
from reaper.service import tokens
from reaper.service.cycle import CycleResult
from reaper.service.daemon import Daemon
from reaper.wiring import Parts

_FIRST_REPORTS_WITHIN_S = 25.0


class LocalCloud(Protocol):
    def launch(self, machine: Machine) -> ResourceId: ...
    def states(self) -> Mapping[str, str]: ...


_END_WITHIN_S = 20.0


def configuration_text(endpoint: str, google: str | None = None) -> str:
    """The demo's own configuration. ``endpoint``: where its EC2 API listens, on loopback; ``google``: its Compute Engine, if any."""
    text = files("reaper.demo").joinpath("story.toml").read_text(encoding="utf-8").replace("ENDPOINT", endpoint)
    if google is not None:
        return text.replace("GOOGLE", google)
    begin = text.index("[clouds.gcp]")
    return text[:begin] + text[text.index("[gang]") :]


@contextmanager
def set_up(folder: Path, story: tuple[Machine, ...], screen: Screen, began: float) -> Iterator["Running"]:
    with ExitStack() as closing:
        clouds: dict[str, LocalCloud] = {"aws": (ec2 := LocalEc2())}
        closing.callback(ec2.close)
        google = LocalGoogle() if any(machine.cloud == "gcp" for machine in story) else None
        if google is not None:
            clouds["gcp"] = google
            closing.callback(google.close)
        written = folder / "reaper.toml"
        written.write_text(configuration_text(ec2.url, None if google is None else google.url))
        live = LiveConfiguration(written)
        parts = wiring.build(live.current()[0], folder / "state")
        closing.callback(parts.store.close)
        for cloud in parts.clouds.values():
            cloud.list()  # loads what takes seconds, before anybody's reports could be late for it
        app = App(parts.ingest, tokens.Verifier(parts.store), lambda: None, parts.metrics.render, metrics=parts.metrics, clock=parts.clock)
        door = Server(app, port=0)
        door.start()
        closing.callback(door.stop)
        running = Running(story, folder, clouds, parts, live, f"http://127.0.0.1:{door.port}", began, screen)
        closing.callback(running.close)
        yield running


class Running:
    """Everything that runs. ``cycles``: what the daemon's thread saw, for the main thread."""

    def __init__(
        self, story: tuple[Machine, ...], folder: Path, clouds: Mapping[str, LocalCloud], parts: Parts, live: LiveConfiguration, door: str,
        began: float, screen: Screen,
    ) -> None:  # fmt: skip
        self.story, self._clouds, self.parts, self._live, self._door = story, clouds, parts, live, door
        self._folder, self._began, self._screen = folder, began, screen
        self.cycles: queue.Queue[Seen] = queue.Queue()
        self._ids: dict[ResourceId, Machine] = {}
        self._agents: dict[str, Agent] = {}
        self._stop = threading.Event()
        self._teller = Teller(self._ids, parts.cycle, parts.clock, self.configuration, Director(story, self._twist))
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
        """The daemon first, since it may just be launching a machine with its agent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_END_WITHIN_S)
        for agent in self._agents.values():
            agent.die()
        for agent in self._agents.values():
            agent.join()

    def states(self) -> dict[str, str]:
        """Every machine's state by its name, by the clouds' own words."""
        return {name: state for cloud in self._clouds.values() for name, state in cloud.states().items()}

    def elapsed(self) -> float:
        return self.parts.clock.monotonic() - self._began

    def _launch(self, machine: Machine) -> None:
        resource = self._clouds[machine.cloud].launch(machine)
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

    def _seen(self, result: CycleResult) -> None:
        """Called by the daemon's thread after each cycle; what happens next has happened before the cycle that follows."""
        try:
            seen = self._teller.look(result)
        except Exception as error:  # noqa: BLE001 - it must end the demo with its reason, not the daemon's thread without one
            seen = Seen(failed=f"{type(error).__name__}: {error}")
        self.cycles.put(seen)
