"""One real agent: its own settings file, token, state folder and thread, over scripted readings."""

import threading
import uuid
from datetime import datetime
from pathlib import Path

from agent import config
from agent.clock import BootClock, Clock
from agent.loop import run_loop
from reaper.demo.silicon import ScriptedHost, Silicon
from reaper.demo.story import CHIPS, Act, Machine
from reaper.model.resource import ResourceId

WINDOW, BEAT = "1s", "100ms"
_END_WITHIN_S = 15.0


class LaunchedClock:
    """The clock of a machine that was booted ``age_s`` seconds before this object was made."""

    def __init__(self, age_s: float) -> None:
        self._real: Clock = BootClock()
        self._booted_s = self._real.boot_s() - age_s

    def boot_s(self) -> float:
        return self._real.boot_s() - self._booted_s

    def slept_s(self) -> float:
        return self._real.slept_s()

    def utc(self) -> datetime:
        return self._real.utc()

    def wait(self, event: threading.Event, for_s: float) -> bool:
        return self._real.wait(event, for_s)


class QuietLog:
    """An agent's log, of which only what it could not do is kept: a dozen agents would talk over the story."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def debug(self, event: str, **keys: object) -> None: ...

    def info(self, event: str, **keys: object) -> None: ...

    def warning(self, event: str, **keys: object) -> None:
        self.lines.append(f"{event} {keys}")

    def error(self, event: str, **keys: object) -> None:
        self.lines.append(f"{event} {keys}")


class Agent:
    """`agent.loop.run_loop` in a thread. ``act`` changes what runs on the machine; ``die`` ends it."""

    def __init__(self, machine: Machine, resource: ResourceId, door: str, token: str, folder: Path) -> None:
        assert machine.act is not None, f"{machine.name} has no agent"
        settings = config.load(_write(folder, resource, door, token), env={})
        clock, self.log = LaunchedClock(machine.age.total_seconds()), QuietLog()
        self._silicon = Silicon(machine.name, CHIPS[machine.type], machine.act, clock)
        host = ScriptedHost(self._silicon, clock)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=run_loop,
            args=(settings, self._silicon, host, self._stop),
            kwargs={"loaders": self._silicon, "boot_id": str(uuid.uuid4()), "clock": clock, "log": self.log},
            name=f"agent {machine.name}",
            daemon=True,
        )
        self._thread.start()

    def act(self, act: Act) -> None:
        self._silicon.act = act

    def die(self) -> None:
        """Begin to end it, without waiting."""
        self._stop.set()

    def join(self) -> None:
        self._thread.join(_END_WITHIN_S)


def _write(folder: Path, resource: ResourceId, door: str, token: str) -> Path:
    """The files that an installed agent has."""
    folder.mkdir(mode=0o700)
    secret = folder / "token"
    secret.touch(mode=0o600)
    secret.write_text(token)
    settings = folder / "agent.toml"
    settings.write_text(
        f'reaper = "{door}"\nresource = "{resource}"\ntoken_file = "{secret}"\nstate_dir = "{folder}"\n'
        f'window = "{WINDOW}"\nbeat = "{BEAT}"\n'
    )
    return settings
