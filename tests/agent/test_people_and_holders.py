"""Who holds a GPU and since when, who typed lately, and how that reaches the report."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, List, Optional, Tuple

import pytest

from agent.build import OpenWindow
from agent.jobs import Jobs
from agent.launchers import Launchers
from agent.people import MOST_HOLDERS, MOST_PEOPLE, RECENT_S, Holders, Names, ProcWork, people, terminals, user_name
from agent.readings import NO_GPU, GpuReading, GpuSnapshot, JobReading, Reading, Sample, WorkReading
from agent.report import Holder, Person, Report, Sampler, decode, encode
from tests.agent.doubles import RESOURCE, Lines, ManualClock, PatientClock, ScriptedGpus
from tests.agent.fakeproc import FakeMachine

USERS = {0: "root", 1000: "ada", 1001: "mia"}


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


@pytest.fixture
def holders(machine: FakeMachine) -> Holders:
    return Holders(machine.procs, Names(USERS.get))


def held(*pids: int, at_s: float, ratio: Optional[float] = 0.0, **more: Any) -> GpuReading:
    samples = (Sample(at_s, ratio),) if ratio is not None else ()
    return GpuReading("GPU-0", samples=samples, processes=len(pids), pids=pids, **more)


# --- holders ---


def test_holder_has_a_name_a_user_its_memory_and_the_time_since_something_ran(machine: FakeMachine, holders: Holders) -> None:
    machine.process(400, "python3", uid=1000)
    holders.look([held(400, at_s=1000.0, ratio=0.9)], 1000.0)
    holders.look([held(400, at_s=1005.0)], 1005.0)
    found = holders.look([held(400, at_s=1065.0, pid_bytes={400: 5 << 30})], 1065.0)

    assert found == {"GPU-0": (Holder(400, "python3", "ada", 5 << 30, 60.0),)}


def test_time_of_a_holder_begins_when_it_came(machine: FakeMachine, holders: Holders) -> None:
    machine.process(400)
    holders.look([held(at_s=1000.0)], 1000.0)
    holders.look([held(at_s=1600.0)], 1600.0)
    holders.look([held(400, at_s=1605.0)], 1605.0)
    (holder,) = holders.look([held(400, at_s=1615.0)], 1615.0)["GPU-0"]

    assert holder.since_s == 10.0


@pytest.mark.parametrize("ratio", [None, 0.5], ids=["no sample", "something ran"])
def test_time_is_not_known_or_begins_anew_when_a_beat_does_not_show_quiet(machine: FakeMachine, holders: Holders, ratio: Optional[float]) -> None:
    machine.process(400)
    holders.look([held(400, at_s=1000.0)], 1000.0)
    (during,) = holders.look([held(400, at_s=1300.0, ratio=ratio)], 1300.0)["GPU-0"]
    (after,) = holders.look([held(400, at_s=1305.0)], 1305.0)["GPU-0"]

    assert (during.since_s, after.since_s) == (None, 0.0)


def test_hidden_holder_is_a_number_and_nothing_more(holders: Holders) -> None:
    assert holders.look([held(9999, at_s=1000.0, pid_bytes={9999: None})], 1000.0) == {"GPU-0": (Holder(9999),)}


def test_number_that_is_anothers_now_begins_anew(machine: FakeMachine, holders: Holders) -> None:
    machine.process(400, "old", uid=1000)
    holders.look([held(400, at_s=1000.0)], 1000.0)
    machine.process(400, "new", uid=1001, born_s=1100.0)
    (holder,) = holders.look([held(400, at_s=1200.0)], 1200.0)["GPU-0"]

    assert (holder.name, holder.user, holder.since_s) == ("new", "mia", 0.0)


def test_so_many_holders_and_no_more_the_largest_first(machine: FakeMachine, holders: Holders) -> None:
    pids = tuple(range(400, 420))
    for pid in pids:
        machine.process(pid)
    found = holders.look([held(*pids, at_s=1.0, pid_bytes={pid: pid for pid in pids})], 1.0)["GPU-0"]

    assert [holder.pid for holder in found] == list(range(419, 419 - MOST_HOLDERS, -1))


def test_gpu_whose_list_cannot_be_read_has_no_holders_rather_than_none(holders: Holders) -> None:
    assert holders.look([GpuReading("GPU-0", processes=None)], 1.0) == {}


def test_only_the_processes_of_now_are_remembered(machine: FakeMachine, holders: Holders) -> None:
    for pid in range(400, 500):
        machine.process(pid)
        holders.look([held(pid, at_s=float(pid))], float(pid))

    assert len(holders._known) == 1


# --- names ---


def test_names_come_from_the_machines_own_directory() -> None:
    assert user_name(0) == "root"
    assert Names().of(0) == "root"
    assert Names().of(3_999_999_999) == "3999999999"


def test_directory_that_does_not_answer_costs_a_moment_once_and_the_number_stands_in() -> None:
    answer, asked = threading.Event(), []

    def slow(uid: int) -> str:
        asked.append(uid)
        answer.wait(20.0)
        return "ada"

    names = Names(slow)
    before = [names.of(1000), names.of(1000), names.of(1001)]
    answer.set()
    for thread in threading.enumerate():
        if thread.name == "user-name":
            thread.join(20.0)

    assert before == ["1000", "1000", "1001"]
    assert asked == [1000]
    assert names.of(1000) == "ada"


# --- people ---


def typed(folder: Path, number: int, at_s: float) -> None:
    (folder / str(number)).write_text("")
    os.utime(folder / str(number), (at_s, at_s))


def test_terminals_tell_who_typed_and_when_latest_first(tmp_path: Path) -> None:
    for number, at_s in ((0, 1000.0), (1, 1900.0), (2, 500.0)):
        typed(tmp_path, number, at_s)
    (tmp_path / "ptmx").write_text("")

    assert terminals(tmp_path, 2000.0) == {os.getuid(): 100.0}


def test_terminal_from_the_future_tells_no_time(tmp_path: Path) -> None:
    typed(tmp_path, 0, 9999.0)

    assert terminals(tmp_path, 2000.0) == {os.getuid(): None}


def test_terminals_that_cannot_be_listed_are_not_none() -> None:
    assert terminals(Path("/nonexistent/pts"), 2000.0) is None


PEOPLE: List[Tuple[str, Any, Any, Any]] = [
    ("nobody", set(), {}, ()),
    ("not known", set(), None, None),
    ("known by their processes alone", {1000}, None, (Person("ada", 1000, "gpu"),)),
    ("on a GPU and at a terminal", {1000}, {1000: 5.0}, (Person("ada", 1000, "gpu", 5.0),)),
    ("at a terminal", set(), {1001: 60.0}, (Person("mia", 1001, "login", 60.0),)),
    ("GPU first, then who typed last", {1000}, {0: 90.0, 1001: 60.0}, (Person("ada", 1000, "gpu"), Person("mia", 1001, "login", 60.0), Person("root", 0, "login", 90.0))),
    ("typed days ago", set(), {1001: RECENT_S + 1}, ()),
    ("when is not known", set(), {1001: None}, ()),
    ("without a name", {1234}, {}, (Person("1234", 1234, "gpu"),)),
]  # fmt: skip


@pytest.mark.parametrize(("users", "idle", "expected"), [row[1:] for row in PEOPLE], ids=[row[0] for row in PEOPLE])
def test_people(users: Any, idle: Any, expected: Any) -> None:
    assert people(users, idle, Names(USERS.get)) == expected


def test_so_many_people_and_no_more() -> None:
    assert len(people(set(range(100)), {}, Names(lambda uid: "u%d" % uid)) or ()) == MOST_PEOPLE


# --- all together ---


def test_work_of_a_machine_from_the_driver_to_the_report(machine: FakeMachine, tmp_path: Path) -> None:
    clock, names = ManualClock(), Names(USERS.get)
    pts = tmp_path / "pts"
    pts.mkdir()
    typed(pts, 0, clock.utc().timestamp() - 30.0)
    machine.process(400, "py\n\x1b[31mthon", uid=1000)
    work = ProcWork(clock, Jobs(machine.procs, Launchers(machine.procs)), Holders(machine.procs, names), names, pts)
    snapshot = GpuSnapshot(gpus=(held(400, at_s=1000.0, pid_bytes={400: 7}),), count=1)
    window = OpenWindow(940.0)
    window.add(Reading(snapshot, None, work.look(snapshot)), 5.0)
    gpus = window.gpus({"GPU-0": None}, None)
    report = Report(RESOURCE, "b", 1000.0, 1000000, 60.0, 0.0, Sampler("ok"), gpus=gpus, jobs=window.jobs(1000.0), people=window.people())

    assert gpus[0].holders == (Holder(400, "py  [31mthon", "ada", 7, 0.0),)
    assert [person.user for person in report.people or ()] == ["ada", USERS.get(os.getuid(), str(os.getuid()))]
    assert [job.id for job in report.jobs or ()] == ["session-3.scope@500"]
    assert decode(encode(report)) == report


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (GpuSnapshot("failed"), None), (GpuSnapshot(gpus=(), count=2), None), (GpuSnapshot("stuck"), None),
        (GpuSnapshot(NO_GPU, count=0), ()), (GpuSnapshot(gpus=(), count=0), ()),
    ],
    ids=["driver failed", "gpus missing", "driver stuck", "no gpu", "none listed"],
)  # fmt: skip
def test_without_all_gpus_there_are_no_jobs_to_speak_of(machine: FakeMachine, tmp_path: Path, snapshot: GpuSnapshot, expected: Any) -> None:
    names = Names(USERS.get)
    work = ProcWork(ManualClock(), Jobs(machine.procs, Launchers(machine.procs)), Holders(machine.procs, names), names, tmp_path / "none")

    assert work.look(snapshot).jobs == expected
    assert work.look(snapshot).people is None


def window_with(work: Optional[WorkReading], ratio: float = 0.0) -> OpenWindow:
    window = OpenWindow(0.0)
    window.add(Reading(GpuSnapshot(gpus=(held(400, at_s=60.0, ratio=ratio),)), None, work), 5.0)
    return window


def test_launcher_whose_name_cannot_be_printed_is_still_a_launcher() -> None:
    (job,) = window_with(WorkReading((JobReading("x", 10.0, "\n\x1b", True),))).jobs(60.0) or ()

    assert (job.launcher, job.ended_age_s) == ("?", 50.0)


def test_what_was_not_looked_at_is_absent() -> None:
    for window in (OpenWindow(0.0), window_with(None), window_with(WorkReading())):
        assert (window.jobs(60.0), window.people()) == (None, None)


def test_gpu_that_computed_needs_no_holders_in_the_report() -> None:
    work = WorkReading(holders={"GPU-0": (Holder(400),)})

    assert window_with(work, 0.9).gpus({"GPU-0": None}, None)[0].holders is None
    assert window_with(work, 0.01).gpus({"GPU-0": None}, None)[0].holders == (Holder(400),)


def test_work_that_cannot_be_read_costs_no_gpu_figure(log: Lines) -> None:
    from agent.sampler import Sampler as Thread

    class Broken:
        def look(self, snapshot: GpuSnapshot) -> WorkReading:
            raise RuntimeError("surprise")

    clock = PatientClock()
    thread = Thread(ScriptedGpus(lambda: GpuSnapshot(count=1)), None, clock, log, 5.0, Broken())
    (reading,) = thread.beat()
    thread.close()

    assert (reading.snapshot.count, reading.work) == (1, None)
    assert "work reading failed" in log.events()
