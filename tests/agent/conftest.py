"""What the agent's tests share. Runs on Python 3.9 and imports nothing of the reaper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent.doubles import Lines, ManualClock
from tests.agent.driven import makes
from tests.fakes import nvml


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log() -> Lines:
    return Lines()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled fake driver, loaded into this process."""
    built = nvml.build(tmp_path_factory.mktemp("nvml"))
    nvml.load_here(built)
    return built


@pytest.fixture
def driver(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The steering file of the fake driver in this process."""
    state = nvml.State(tmp_path / "gpus")
    monkeypatch.setenv(nvml.STATE_VARIABLE, str(state.path))
    return state


@pytest.fixture
def make(driver: Any, log: Lines) -> Any:
    """`make("count 2", "gpu 0 util 97")` gives a source of GPUs over the fake driver, and its clock."""
    yield from makes(driver, log)
