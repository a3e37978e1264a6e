"""Sleep, steps of the wall clock and leaps: lengths come from the boot clock, and what was not watched is in no window."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, List, Tuple

import pytest

from agent.clock import BootClock
from agent.readings import GpuSnapshot, HostReading
from agent.report import Report, Sampler
from agent.sender import Outcome, Sender
from agent.spool import Spool
from tests.agent.doubles import BOOT, Lines, ManualClock, ScriptedHost, gpu
from tests.agent.test_loop import Rig


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """A loop over one busy GPU."""
    rig = Rig(tmp_path, lambda rig: GpuSnapshot(gpus=(gpu(0, rig.clock, 0.5),), count=1), hosts=ScriptedHost(HostReading(10.0, 100.0, 4)))
    yield rig
    rig.sampler.close()


def spans(reports: List[Report]) -> List[Tuple[float, float]]:
    return [(round(report.up_s - report.window_s, 3), report.up_s) for report in reports]


def covered(reports: List[Report]) -> List[Any]:
    return [report.gpus[0].covered_s for report in reports]


def test_long_sleep_ends_the_window_where_watching_ended_and_begins_a_new_one_on_waking(made: Rig) -> None:
    made.run(20.0)
    made.clock.sleep(8 * 3600.0)
    reports = made.run(60.0)

    assert spans(reports)[0] == (1000.0, 1020.0)
    assert reports[1].up_s - reports[1].window_s >= 1000.0 + 8 * 3600.0
    assert reports[1].window_s == 60.0
    assert covered(reports) == [20.0, 60.0]


def test_short_sleep_within_a_window_cuts_it_too(made: Rig) -> None:
    made.run(20.0)
    made.clock.sleep(12.0)
    reports = made.run(60.0)

    assert spans(reports) == [(1000.0, 1020.0), (1037.0, 1097.0)]
    assert covered(reports) == [20.0, 60.0]


def test_several_short_sleeps_within_a_window_add_up(made: Rig) -> None:
    made.run(10.0)
    made.clock.sleep(3.0)
    made.run(10.0)
    made.clock.sleep(3.0)
    made.run(5.0)

    assert len(made.out.reports) == 1
    assert made.out.reports[0].window_s < 30.0


def test_sleep_of_less_than_a_beat_leaves_the_window_whole(made: Rig) -> None:
    made.run(20.0)
    made.clock.sleep(2.0)
    reports = made.run(60.0)

    assert spans(reports)[0] == (1000.0, 1060.0)


def test_sleep_before_a_window_began_does_not_cut_it(made: Rig) -> None:
    made.clock.slept = 5000.0
    made.loop._slept_s = 5000.0
    reports = made.run(120.0)

    assert spans(reports) == [(1000.0, 1060.0), (1060.0, 1120.0)]


def test_agent_that_is_told_to_end_on_waking_reports_only_what_it_watched(made: Rig) -> None:
    made.run(20.0)
    made.clock.sleep(600.0)
    made.loop.end(hand_over=True)

    assert spans(made.out.reports) == [(1000.0, 1020.0)]


def test_freeze_that_is_no_sleep_covers_two_beats_at_most(made: Rig) -> None:
    """A stopped process or a paused machine: the clocks go on together."""
    made.run(20.0)
    made.clock.move(30.0)
    reports = made.run(30.0)

    assert spans(reports) == [(1000.0, 1060.0)]
    assert covered(reports) == [20.0 + 10.0 + 5.0]


@pytest.mark.parametrize("step", [timedelta(days=-400), timedelta(hours=-1), timedelta(seconds=1), timedelta(days=400)], ids=str)
def test_steps_of_the_wall_clock_change_no_length_and_no_place(made: Rig, step: timedelta) -> None:
    """A leap second is the smallest of them."""
    made.run(20.0)
    made.clock.wall += step
    reports = made.run(100.0)

    assert spans(reports) == [(1000.0, 1060.0), (1060.0, 1120.0)]
    assert covered(reports) == [60.0, 60.0]
    assert [report.seq for report in reports] == [1060000, 1120000]


def test_age_of_a_report_is_told_by_the_boot_clock_over_steps_and_sleep(tmp_path: Path) -> None:
    clock, log, bodies = ManualClock(), Lines(), []  # type: ignore[var-annotated]
    answers = [Outcome("later", problem="no network"), Outcome("sent"), Outcome("sent")]

    class Post:
        def __call__(self, body: bytes) -> Outcome:
            bodies.append(body)
            return answers.pop(0)

        def close(self) -> None: ...

    sender = Sender(Post(), Spool(tmp_path, BOOT, 10, 1 << 20, log), clock, log)
    report = Report("aws:123456789012:eu-west-1:instance:i-0abc", BOOT, 1000.0, 1000000, 60.0, 0.0, Sampler("ok"))
    sender.hand(report)
    sender.pump()
    clock.wall -= timedelta(days=3)
    clock.sleep(3600.0)
    sender.pump()

    assert b'"age_s":3600.0' in bodies[-1]


def test_report_of_another_boot_is_not_sent_as_if_it_were_of_this_one(tmp_path: Path) -> None:
    log = Lines()
    report = Report("aws:123456789012:eu-west-1:instance:i-0abc", BOOT, 1000.0, 1000000, 60.0, 0.0, Sampler("ok"))
    Spool(tmp_path, BOOT, 10, 1 << 20, log).put(report)
    Spool(tmp_path, "other-boot", 10, 1 << 20, log).put(replace(report, boot_id="other-boot"))

    kept = Spool(tmp_path, "third-boot", 10, 1 << 20, log)

    assert (len(kept), kept.dropped) == (0, 1)


def test_the_real_clocks_agree_that_a_machine_at_work_does_not_sleep() -> None:
    clock = BootClock()
    before = clock.slept_s()

    assert clock.slept_s() - before < 1.0
    assert 0.0 <= before + 1e-3 <= clock.boot_s() + 1e-3
