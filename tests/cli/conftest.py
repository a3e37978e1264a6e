"""A room for commands: a state folder, a configuration, a clock and a cloud in memory, and the commands run in this process."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from reaper import config
from reaper.cli.main import main
from reaper.model.kinds.instance import Instance
from reaper.model.mark import Mark, Stage
from reaper.model.policy import Configuration, Policy
from reaper.model.signal import Observation, Voice
from reaper.ports import Store
from reaper.service.inventory import refresh
from reaper.wiring import open_state
from tests import builders as make
from tests.builders import MINUTE, NOW, SECOND
from tests.fakes.clock import ManualClock
from tests.fakes.cloud import FakeCloud

ENFORCING = """
schema = 1
name = "ml"
mode = "enforce"
[clouds.aws]
accounts = ["111122223333"]
regions = ["eu-west-1"]
[scope]
tags = { team = ["ml"] }
verbs = ["stop", "start"]
[budget]
stops = { per_hour = 10 }
[prices]
"g5.xlarge" = 1.5
[defaults]
snooze = { up_to = "2d" }
min_age = "5m"
[policy.exploration]
when = { tags = { team = ["ml"] } }
mode = "enforce"
idle = { for = "10m", held_for = "20m" }
warn = { for = "5m", via = ["log"] }
"""
OBSERVING = ENFORCING.replace('mode = "enforce"\n[clouds', 'mode = "observe"\n[clouds')


@dataclass(frozen=True, slots=True)
class Answer:
    """``json``: the object on the last line of stdout."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        told = json.loads(self.out.splitlines()[-1])
        assert isinstance(told, dict)
        return told


@dataclass
class Room:
    folder: Path
    capsys: pytest.CaptureFixture[str]
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))

    def __post_init__(self) -> None:
        self.cloud = FakeCloud(self.clock)
        self.configure(ENFORCING)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def configuration(self) -> Configuration:
        return config.load(self.folder / "reaper.toml")

    @property
    def policy(self) -> Policy:
        return self.configuration.policies[0]

    def configure(self, text: str) -> None:
        (self.folder / "reaper.toml").write_text(text, encoding="utf-8")

    def reaper(self, *words: str) -> Answer:
        """Any command, on this room's state and configuration."""
        places = ["--state", str(self.state), "--config", str(self.folder / "reaper.toml")]
        code = main([*words, *places], clock=self.clock, clouds={"aws": self.cloud})
        told = self.capsys.readouterr()
        return Answer(code, told.out, told.err)

    @contextmanager
    def store(self) -> Iterator[Store]:
        opened = open_state(self.state)
        try:
            yield opened
        finally:
            opened.close()

    # --- what there is ------------------------------------------------------------------------------------------------

    def machine(self, native: str = "i-01", name: str | None = "trainer", **changes: Any) -> Instance:
        """In the cloud and in scope, and, with ``list_all``, in the store."""
        tags = {"team": "ml", "owner": "ada"} | changes.pop("tags", {})
        made = make.instance(native, name=name, tags=tags, **changes)
        self.cloud.put(made)
        return made

    def list_all(self) -> None:
        with self.store() as store:
            refresh((self.cloud,), store, self.clock.now() - 10 * SECOND)

    def report(self, native: str = "i-01", minutes: int = 15, until: datetime = NOW - 20 * SECOND, **changes: Any) -> None:
        """Quiet windows without a hole, a minute each, the newest ending at ``until``."""
        of = make.resource(native)
        first = until - (minutes - 1) * MINUTE
        with self.store() as store:
            for n in range(minutes):
                seen: Observation = make.observation(ended_at=first + n * MINUTE, resource=of, **changes)
                store.add_observation(seen, Voice(of, seen.boot_id, first_at=first, boot_since=first, last_at=seen.received_at))

    def mark(self, stage: Stage = Stage.DUE, native: str = "i-01", **changes: Any) -> Mark:
        made = make.mark(stage, native, policy=self.policy.name, policy_digest=self.policy.digest, **changes)
        with self.store() as store:
            store.save_marks((made,), (), ())
            store.set_facts({"last_cycle_at": (NOW - MINUTE).isoformat(), "mode": self.configuration.mode.value})
        return made

    def due(self, native: str = "i-01", name: str = "trainer") -> Instance:
        """A machine that nothing stands between and its stop."""
        made = self.machine(native, name)
        self.list_all()
        self.report(native)
        self.mark(native=native)
        return made

    def led_by_another(self) -> None:
        with self.store() as store:
            assert store.acquire_lease("another", self.clock.now(), timedelta(minutes=3)) is not None

    def stopped_by_us(self, native: str = "i-01") -> str:
        """The attempt's id. The cloud shows the machine as our stop left it."""
        before = self.machine(native)
        after = make.stopped(before)
        self.cloud.machines[before.id] = after
        attempt = replace(make.attempt(native=native), before=before, after=after)
        with self.store() as store:
            lease = store.acquire_lease("then", NOW - 2 * MINUTE, 3 * MINUTE)
            assert lease is not None
            opened = replace(attempt, outcome=None, outcome_at=None, after=None)
            entry = make.entry(attempt)
            store.begin_attempt(opened, lease, NOW - 2 * MINUTE, entry, lambda _: None)
            store.end_attempt(attempt, entry)
            store.release_lease(lease)
        self.list_all()
        return attempt.id


@pytest.fixture
def room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Room]:
    yield Room(tmp_path, capsys)
    structlog.reset_defaults()  # a command points the log at the stderr of its test


@pytest.fixture(autouse=True)
def _nobody_elses_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REAPER_CONFIG", "REAPER_STATE", "REAPER_STORE", "COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
