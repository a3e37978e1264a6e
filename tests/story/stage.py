"""
The whole product as processes: agents over a compiled NVML library, the daemon, and a real EC2 API over HTTP.

Nothing is faked but the silicon and the cloud. Terms are seconds, which the configuration allows on loopback.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reaper.clock import SystemClock
from reaper.model.resource import ResourceId
from reaper.ports import Store
from reaper.service.tokens import issue
from reaper.wiring import open_state
from tests.fakes import nvml
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2

ROOT = Path(__file__).resolve().parents[2]
REGION = "us-east-1"

CONFIGURATION = """
schema = 1
name = "story"
mode = "enforce"
cycle = "1s"

[clouds.aws]
regions = ["us-east-1"]
endpoint = "{endpoint}"

[gang]
same = ["tag:job-group"]

[scope]
tags = {{ team = ["ml"] }}
verbs = ["stop", "start"]

[protect.long-run]
ids = ["{protected}"]
reason = "pre-training run"

[budget]
stops = {{ per_day = 50 }}
breaker = "off"

[channels.people]
webhook = "{webhook}"

[defaults]
warn = {{ for = "5s", via = ["people"] }}
min_age = "2s"
busy = {{ cpu = "100%", disk_mib_s = 100000, net_mib_s = 100000 }}

[policy.research]
when = {{ tags = {{ phase = ["research"] }} }}
mode = "enforce"
idle = {{ for = "12s", gpu_at_most = "5%", held_for = "1h" }}

[policy.watched]
when = {{ tags = {{ phase = ["watched"] }} }}
idle = {{ for = "12s", gpu_at_most = "5%", held_for = "1h" }}
"""


# All hosts read the CPU of this one machine, and whatever else runs here may fill it: then every host is at work, and rightly
# not one is stopped. With as many cores again that rest, what an agent reads stays real and below the story's limit.
SPARE_CORES = """
import psutil

times_of_this_machine = psutil.cpu_times

def cpu_times(*arguments, **more):
    times = times_of_this_machine(*arguments, **more)
    return times._replace(idle=times.idle + sum(times))

psutil.cpu_times = cpu_times
"""


def free_port() -> int:
    """
    Below those that the kernel hands to clients: while the daemon is away, an outgoing connection of anybody (even an
    agent's own try to reach this port) could take one of theirs, and the daemon would not come back.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(10_000, max(lowest, 20_000)), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("none of 100 ports is free")


@dataclass
class Host:
    """One machine: its EC2 id, its driver's state file, and its agent's process."""

    name: str
    native: str
    gpus: int
    folder: Path
    state: nvml.State
    agent: "subprocess.Popen[bytes] | None" = None

    @property
    def id(self) -> str:
        return f"aws:{ACCOUNT}:{REGION}:instance:{self.native}"

    def load(self, *lines: str) -> None:
        self.state.write(f"count {self.gpus}", "gpu * name Tesla V100-SXM2-16GB", *lines)


@dataclass
class Stage:
    """``port``: where the daemon listens. Everything it started ends with `close`."""

    folder: Path
    moto: MotoEc2
    library: Path
    webhook: str
    port: int = field(default_factory=free_port)
    hosts: dict[str, Host] = field(default_factory=dict)
    daemon: "subprocess.Popen[bytes] | None" = None
    opened: Store | None = None

    @property
    def store(self) -> Store:
        """The daemon's own state, opened once beside it."""
        if self.opened is None:
            self.opened = open_state(self.state, create=False)
        return self.opened

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "REAPER_"))}
        return {
            **kept, "PYTHONPATH": str(ROOT), "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(self.folder), "AWS_CONFIG_FILE": str(self.folder / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.folder / "none"),
        }  # fmt: skip

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def launch(self, name: str, gpus: int = 1, phase: str = "research", **tags: str) -> Host:
        type_ = "p3.2xlarge" if gpus == 1 else "p3.16xlarge"
        native = self.moto.launch(name, type=type_, team="ml", phase=phase, owner="ada", **tags)
        folder = self.folder / "hosts" / name
        folder.mkdir(parents=True)
        host = Host(name, native, gpus, folder, nvml.State(folder / "gpus"))
        host.load("gpu * util 0")
        self.hosts[name] = host
        return host

    def configure(self, protected: Host) -> None:
        text = CONFIGURATION.format(endpoint=self.moto.url, protected=protected.id, webhook=self.webhook)
        (self.folder / "reaper.toml").write_text(text)

    def command(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        line = [
            sys.executable, "-m", "reaper", arguments[0], "--config", str(self.folder / "reaper.toml"), "--state", str(self.state), *arguments[1:],
        ]  # fmt: skip
        done = subprocess.run(line, env=self.env, capture_output=True, text=True, timeout=90, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self.command(*arguments, "--json").stdout.splitlines()[-1])

    def start_daemon(self) -> None:
        line = [
            sys.executable, "-m", "reaper", "run", "--config", str(self.folder / "reaper.toml"), "--state", str(self.state),
            "--listen", f"127.0.0.1:{self.port}",
        ]  # fmt: skip
        with (self.folder / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(line, env=self.env, stderr=log, stdout=log)

    def stop_daemon(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.daemon is not None
        self.daemon.send_signal(how)
        return self.daemon.wait(timeout=20)

    def start_agent(self, host: Host) -> None:
        token = self._token(host)
        (host.folder / "token").write_text(token)
        (host.folder / "token").chmod(0o600)
        (host.folder / "agent.toml").write_text(
            f'reaper = "http://127.0.0.1:{self.port}"\ntoken_file = "{host.folder}/token"\n{self.identity_lines(host)}'
            f'state_dir = "{host.folder}/state"\nspool_dir = "{host.folder}/spool"\nwindow = "2s"\nbeat = "250ms"\nhook_socket = "{host.folder}/hook.sock"\n'
        )
        spare = self.folder / "spare-cores"
        spare.mkdir(exist_ok=True)
        (spare / "sitecustomize.py").write_text(SPARE_CORES)
        env = {**self.env, **nvml.environment(self.library, host.state), "PYTHONPATH": f"{spare}{os.pathsep}{ROOT}"}
        line = [sys.executable, "-m", "agent", "run", "--config", str(host.folder / "agent.toml")]
        with (host.folder / "agent.log").open("ab") as log:
            host.agent = subprocess.Popen(line, env=env, stderr=log, stdout=log, cwd=host.folder)

    def identity_lines(self, host: Host) -> str:
        """How the agent learns who it is."""
        return f'resource = "{host.id}"\n'

    def _token(self, host: Host) -> str:
        if host.name == "idle":  # as an operator does it
            return str(self.json("token", "issue", host.id)["token"])
        return issue(self.store, ResourceId.parse(host.id), SystemClock().now(), "the story")  # without a second of start-up each

    def kill_agent(self, host: Host) -> None:
        assert host.agent is not None
        host.agent.kill()
        host.agent.wait(timeout=20)

    def ec2_state(self, host: Host) -> str:
        return str(self.moto.machine(host.native)._state.name)

    def audit(self, host: Host | None = None) -> list[dict[str, Any]]:
        """Read from the store directly: a command takes a second, and these stories turn on less."""
        entries = self.store.audit(resource=ResourceId.parse(host.id) if host is not None else None, limit=10_000)
        return [{"kind": e.kind.value, "at": e.at, "because": e.because, "evidence": e.evidence, "action": e.action} for e in entries]

    def kinds(self, host: Host) -> list[str]:
        return [entry["kind"] for entry in self.audit(host)]

    def wait(self, what: str, seen: Callable[[], bool], within_s: float = 180.0) -> None:
        end = time.monotonic() + within_s
        while not seen():
            if self.daemon is not None and self.daemon.poll() not in (None, 0):
                raise AssertionError(f"the daemon ended with {self.daemon.returncode}:\n{self.tail()}")
            if time.monotonic() > end:
                raise AssertionError(f"not within {within_s:.0f} s: {what}\n{self.tail()}")
            time.sleep(0.1)

    def tail(self) -> str:
        log = self.folder / "daemon.log"
        return log.read_text(errors="replace")[-6000:] if log.exists() else "(no log)"

    def close(self) -> None:
        running = [host.agent for host in self.hosts.values() if host.agent is not None] + ([self.daemon] if self.daemon else [])
        for process in running:
            if process.poll() is None:
                process.terminate()
        for process in running:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=20)
        if self.opened is not None:
            self.opened.close()
