"""Eight worlds, a rotating twentieth of the planted faults, and what both of these stand on."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

import pytest

from tests.simulation import planted
from tests.simulation.fleet import draw
from tests.simulation.pool import Task, work, workers
from tests.simulation.settings import Settings
from tests.simulation.truth import BOOTING, OFF, Doing, Track

ROOT = Path(__file__).parents[2]
PARTS = 20


def simulate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.simulation
def test_eight_worlds_pass_without_a_violation() -> None:
    done = simulate("--seeds", "8")

    result = json.loads(done.stdout.splitlines()[-1])
    assert result["violations"] == [], done.stdout[-6000:]
    assert done.returncode == 0, done.stderr[-3000:]
    assert result["seeds"] == 8
    assert result["actions"] > 100, "too little happened to show anything"
    assert result["recovered"] >= 0.95
    assert result["recovered_with_hiccups"] >= 0.80
    assert len(result["faults"]) > 20, "the weather was too fine"


@pytest.mark.simulation
def test_a_rotating_twentieth_of_the_planted_faults_is_found() -> None:
    part = int(os.environ.get("PLANTED_PART", datetime.now(UTC).toordinal() % PARTS + 1))
    again = f"again: python -m tests.simulation --planted --part {part}/{PARTS}"
    print(again)

    done = simulate("--planted", "--part", f"{part}/{PARTS}")

    count = len(planted.FAULTS[part - 1 :: PARTS])
    assert done.stdout.splitlines()[-1] == f"{count} of {count} planted faults found", f"{again}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    assert done.returncode == 0


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with workers(2) as made:
        yield made


def test_a_seed_is_the_same_story_every_time(pool: ProcessPoolExecutor) -> None:
    task = Task(7, frozenset({"storm", "small", "short"}), story=True)
    one, other = pool.submit(work, task), pool.submit(work, task)

    assert one.result()["story"] == other.result()["story"]
    assert len(one.result()["story"]) > 20


def test_what_fails_is_told_with_its_seed(pool: ProcessPoolExecutor) -> None:
    task = Task(1000, frozenset({"calm", "small", "forgotten"}), "last look off", one_is_enough=True)

    outcome = pool.submit(work, task).result()

    assert outcome["violations"], "stopping without a last look went unnoticed"
    assert any(line.startswith(outcome["violations"][0]["at"]) for line in outcome["story"])


def test_every_planted_fault_fits_the_code_as_it_is() -> None:
    for fault in planted.FAULTS:
        with planted.planted(fault):
            pass


@pytest.mark.parametrize(
    "edit",
    [
        planted.Edit("reaper.decide.breaker:no_such_function"),
        planted.Edit("reaper.no_such_module:jump"),
        planted.Edit("reaper.decide.breaker:jump", "a text that is not there", "x"),
        planted.Edit("reaper.decide.breaker:jump", "turn", "x"),
    ],
)
def test_a_planted_fault_that_no_longer_fits_is_an_error_and_changes_nothing(edit: planted.Edit) -> None:
    from reaper.decide.breaker import jump

    before = jump.__code__
    with pytest.raises(planted.DoesNotFit), planted.planted(planted.Fault("old", (edit,), frozenset())):
        pass
    assert jump.__code__ is before


def test_a_planted_fault_is_taken_out_again() -> None:
    from reaper.decide.breaker import jump

    before = jump.__code__
    with planted.planted(planted.BY_NAME["breaker never opens"]):
        assert jump((), None, datetime.now(UTC), None) is None  # type: ignore[arg-type]
        assert jump.__code__ is not before
    assert jump.__code__ is before


def test_every_world_has_machines_and_a_configuration_that_reads(tmp_path: Path) -> None:
    from reaper.config import load

    for seed in range(25):
        fleet = draw(seed)
        (tmp_path / "reaper.toml").write_text(fleet.settings.text())

        assert 5 <= len(fleet.machines) <= 40
        assert 3.0 <= fleet.days <= 30.0
        assert load(tmp_path / "reaper.toml").name == "sim"


def test_settings_round_the_reader_as_they_were_meant(tmp_path: Path) -> None:
    from reaper.config import load

    settings: Settings = draw(3).settings
    (tmp_path / "reaper.toml").write_text(settings.text())
    read = load(tmp_path / "reaper.toml")

    for policy in read.policies:
        terms = settings.policies.get(policy.name)
        if terms is not None:
            assert policy.idle.idle_for.total_seconds() == terms.idle_for
            assert policy.warn.wait.total_seconds() == terms.wait
            assert policy.mode.value == terms.mode


# --- truth ------------------------------------------------------------------------------------------------------------------

BUSY, IDLE = Doing("busy", gpu=0.9, held=True, job="j"), Doing("idle")


def track(*doings: tuple[float, Doing]) -> Track:
    def life() -> Iterator[tuple[float, Doing]]:
        yield from doings
        yield from repeat((1000.0, IDLE))

    return Track(life(), 1)


def test_work_shows_in_the_window_that_it_touches() -> None:
    lived = track((50.0, BUSY), (200.0, IDLE), (10.0, BUSY))

    assert lived.seen(0.0, 60.0).peak == (0.9,)
    assert lived.seen(60.0, 120.0).peak == (0.0,)
    assert lived.seen(200.0, 255.0).peak == (0.9,)
    assert lived.worked_until(240.0) == 50.0
    assert lived.worked_in(0.0, 255.0) == [(0.0, 50.0), (250.0, 255.0)]


def test_a_job_is_over_when_its_process_is_gone() -> None:
    lived = track((50.0, BUSY), (200.0, IDLE))

    assert (lived.seen(0.0, 40.0).job, lived.seen(0.0, 40.0).ended_age) == ("j", None)
    assert (lived.seen(60.0, 150.0).job, lived.seen(60.0, 150.0).ended_age) == ("j", 100.0)


def test_who_is_turned_off_in_a_break_comes_back_at_its_end() -> None:
    lived = track((50.0, BUSY), (200.0, IDLE), (100.0, BUSY))

    assert lived.turn_off(100.0) == 250.0
    assert lived.at(150.0) is OFF
    lived.turn_on(300.0, 60.0)
    assert lived.at(310.0) is BOOTING
    assert lived.at(370.0) is BUSY


def test_what_comes_in_between_pushes_the_rest_back() -> None:
    lived = track((50.0, BUSY), (200.0, IDLE), (100.0, BUSY))
    lived.insert(100.0, [(30.0, Doing("visit", gpu=0.5))])

    assert lived.at(110.0).name == "visit"
    assert lived.at(140.0) is IDLE
    assert lived.work_began(290.0) == 280.0


@pytest.mark.parametrize("seed", range(20))
def test_counters_only_grow_and_agree_with_what_was_done(seed: int) -> None:
    dice = random.Random(seed)
    lived = track(*((dice.uniform(5, 100), dice.choice((BUSY, IDLE))) for _ in range(50)))
    moments = sorted(dice.uniform(0, 2000) for _ in range(40))
    counted = [lived.counters(t) for t in moments]

    assert all(a <= b for one, other in zip(counted, counted[1:], strict=False) for a, b in zip(one, other, strict=True))
    a, b = moments[3], moments[30]
    worked = sum(y - x for x, y in lived.worked_in(a, b))
    assert counted[30][3] - counted[3][3] == pytest.approx(50.0 * (b - a) + 0.9 * 250.0 * worked)
