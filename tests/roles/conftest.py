"""Processes of each role over one PostgreSQL and a real EC2 API, and hosts that report to whichever door is next."""

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from agent.report import Gpu, Host, Report, Sampler, Totals, encode
from reaper.clock import SystemClock
from reaper.model.resource import ResourceId
from reaper.service.tokens import issue
from reaper.store import SqlStore, open_store
from tests.cli.test_run import Process, running
from tests.fakes.moto_ec2 import ACCOUNT, MotoEc2, strict_server

CONFIGURATION = """
schema = 1
name = "roles"
mode = "enforce"
cycle = "1s"

[clouds.aws]
accounts = ["{account}"]
regions = ["us-east-1"]
endpoint = "{endpoint}"

[scope]
tags = {{ team = ["ml"] }}
verbs = ["stop"]

[budget]
stops = {{ per_day = 50 }}
breaker = "off"

[defaults]
warn = {{ for = "3s", via = ["log"] }}
min_age = "2s"
busy = {{ cpu = "100%", disk_mib_s = 100000, net_mib_s = 100000 }}

[policy.research]
when = {{ tags = {{ team = ["ml"] }} }}
mode = "enforce"
idle = {{ for = "6s", gpu_at_most = "5%", held_for = "1h" }}
"""

WITHIN_S = 120.0


class Calls(list[tuple[str, str]]):
    """The calls as they arrive; ``at`` is called once, when the one that is waited for does, before it is answered."""

    action: str | None = None
    at: Callable[[], None] | None = None

    def append(self, call: tuple[str, str]) -> None:
        super().append(call)
        if self.at is not None and call[1] == self.action:
            at, self.at = self.at, None
            at()


@dataclass
class Life:
    """One machine. ``load``: of its GPU, 0..1; ``last``: what its agent was answered, by each door."""

    id: ResourceId
    token: str
    load: float = 0.0
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Fleet:
    """``doors`` and ``deciders`` by name. Hosts report each second, to the doors in turn."""

    folder: Path
    url: str
    moto: MotoEc2
    store: SqlStore
    doors: dict[str, Process] = field(default_factory=dict)
    deciders: dict[str, Process] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    ends: ExitStack = field(default_factory=ExitStack)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def env(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "REAPER_STORE": self.url}

    def start_door(self, name: str) -> Process:
        # Without credentials, without a configuration.
        door = self.ends.enter_context(running(self.folder / name, "--role", "ingest", env={"REAPER_STORE": self.url, "HOME": str(self.folder)}))
        door.line("listening")
        self.doors[name] = door
        return door

    def start_decider(self, name: str) -> Process:
        words = ("--role", "control", "--config", str(self.folder / "reaper.toml"))
        decider = self.ends.enter_context(running(self.folder / name, *words, env=self.env))
        decider.line("listening")
        self.deciders[name] = decider
        return decider

    def launch(self, name: str, load: float = 0.0) -> Life:
        native = self.moto.launch(name, type="p3.2xlarge", team="ml", owner="ada")
        id = ResourceId("aws", ACCOUNT, "us-east-1", "instance", native)
        self.lives[name] = Life(id, issue(self.store, id, SystemClock().now(), "test"), load)
        return self.lives[name]

    def stops(self) -> int:
        return self.moto.actions().count("StopInstances")

    def kinds(self, life: Life) -> list[str]:
        return [entry.kind.value for entry in self.store.audit(resource=life.id, limit=10_000)]

    def eventually(self, what: str, good: Callable[[], bool]) -> None:
        end = time.monotonic() + WITHIN_S
        while not good():
            told = {name: [e.because for e in self.store.audit(resource=life.id)][-5:] for name, life in self.lives.items()} if time.monotonic() > end else None
            assert told is None, f"not within {WITHIN_S:g} s: {what}\n{json.dumps(told, indent=1)}"
            time.sleep(0.05)

    def leader(self) -> str:
        """Who leads, by its own word; one that does not answer (killed, suspended) is passed over."""
        found: list[str] = []

        def one_leads() -> bool:
            found[:] = [name for name, process in self.deciders.items() if process.started.poll() is None and "reaper_leader 1.0" in _metrics(process)]
            return len(found) == 1

        self.eventually("exactly one leads", one_leads)
        return found[0]

    def expire_lease(self) -> None:
        """As if the leader had been silent for as long as a lease lasts (half a minute at least)."""
        with self.store._engine.begin() as connection:
            connection.execute(text("UPDATE lease SET expires_at = 0"))

    def _report(self) -> None:
        began, turn = time.monotonic() - 3600.0, 0
        told: dict[str, float] = {}
        while not self.over.wait(1.0):
            for life in self.lives.values():
                turn += 1
                up_s = time.monotonic() - began
                window_s = round(up_s - told.get(life.id.native, up_s - 1.0), 3)  # without a hole, however busy this machine is
                told[life.id.native] = up_s
                name = list(self.doors)[turn % len(self.doors)]
                body = encode(Report(
                    resource=str(life.id), boot_id="boot-1", up_s=up_s, seq=round(up_s * 1000), window_s=window_s, age_s=0.0, sampler=Sampler("ok", version="1"),
                    gpus=(Gpu("GPU-0", peak_ratio=life.load, mean_ratio=life.load, covered_s=window_s, samples=5, mem_used_bytes=0, processes=0),),
                    expected_gpus=1, loader=(), jobs=(), people=(), disks=(), totals=Totals(),
                    host=Host(cpu_ratio=0.01, cpus=8, disk_bytes_per_s=0.0, net_bytes_per_s=0.0, orchestrators=()),
                ))  # fmt: skip
                status, answer = post(self.doors[name], body, life.token)
                if status == 202:
                    life.last[name] = json.loads(answer)
                else:
                    life.refused.append((status, answer))
            turn += 1  # an even number of hosts would else keep each at one door

    def report(self) -> None:
        thread = threading.Thread(target=self._report, name="hosts")
        thread.start()
        self.ends.callback(thread.join)
        self.ends.callback(self.over.set)


def post(process: Process, body: bytes, token: str) -> tuple[int, str]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(process.address + "/v1/reports", body, headers), timeout=15) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def _metrics(process: Process) -> str:
    try:
        with urllib.request.urlopen(process.address + "/metrics", timeout=0.5) as answer:
            text_: str = answer.read().decode()
            return text_
    except OSError:
        return ""


@pytest.fixture
def fleet(tmp_path: Path, database: str) -> Iterator[Fleet]:
    with strict_server() as moto:
        moto.calls = Calls()
        store = open_store(database)
        made = Fleet(tmp_path, database, moto, store)
        (tmp_path / "reaper.toml").write_text(CONFIGURATION.format(account=ACCOUNT, endpoint=moto.url))
        try:
            with made.ends:
                yield made
        finally:
            for process in made.deciders.values():
                if process.started.poll() is None:
                    os.kill(process.started.pid, signal.SIGCONT)
            store.close()


