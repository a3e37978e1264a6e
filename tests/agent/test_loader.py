"""The data-wait figure: over a temporary /proc, over a real process, and folded over a window."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import pytest

from agent.families import IN_TURN, Families
from agent.loader import FAMILY_EVERY, UNSEEN, ProcLoaders, TreeSpan, stood_low
from agent.procs import Procs, Stat
from agent.readings import GpuReading, Sample, TreeReading


class FakeProc:
    """A /proc of a few processes. ``io`` None: another user's, not readable."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def process(self, pid: int, state: str = "S", children: Sequence[int] = (), io: Optional[int] = 0, ticks: int = 0, name: str = "python") -> None:
        folder = self.root / str(pid) / "task" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "children").write_text(" ".join(map(str, children)))
        fields = ["0"] * 50
        fields[0], fields[11], fields[12], fields[19] = state, str(ticks), "0", str(pid * 7)
        (self.root / str(pid) / "stat").write_text("%d (%s) %s" % (pid, name, " ".join(fields)))
        if io is not None:
            (self.root / str(pid) / "io").write_text("rchar: 9999999\nread_bytes: %d\nwrite_bytes: 5\n" % io)

    def end(self, pid: int) -> None:
        (self.root / str(pid) / "stat").unlink()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def held(*pids: int, uuid: str = "GPU-0", processes: Optional[int] = 1) -> GpuReading:
    return GpuReading(uuid, pids=pids, processes=processes)


def loaders(proc: FakeProc) -> ProcLoaders:
    return ProcLoaders(proc.root, ticks_per_s=100)


def test_first_sight_knows_no_growth(proc: FakeProc) -> None:
    proc.process(10, io=10**9, ticks=10**6)

    assert loaders(proc).look([held(10)]) == (TreeReading("pid-10", ("GPU-0",), blocked=False),)


def test_growth_of_reads_and_cpu_since_the_last_look(proc: FakeProc) -> None:
    proc.process(10, io=1000, ticks=100)
    source = loaders(proc)
    source.look([held(10)])
    proc.process(10, io=5000, ticks=350)

    assert source.look([held(10)]) == (TreeReading("pid-10", ("GPU-0",), False, True, 4000, 2.5),)


def test_quiet_tree_is_not_on_its_data_path(proc: FakeProc) -> None:
    proc.process(10, io=1000)
    source = loaders(proc)
    source.look([held(10)])

    assert source.look([held(10)]) == (TreeReading("pid-10", ("GPU-0",), False, False, 0, 0.0),)


def test_child_in_state_d_puts_the_tree_on_its_data_path(proc: FakeProc) -> None:
    proc.process(10, children=[11])
    proc.process(11, state="D", children=[12])
    proc.process(12)
    source = loaders(proc)
    source.look([held(10)])
    (tree,) = source.look([held(10)]) or ()

    assert (tree.blocked, tree.on_data_path) == (True, True)


def test_process_name_with_brackets_and_blanks_is_read(proc: FakeProc) -> None:
    proc.process(10, state="D", name="a) D (b")
    (tree,) = loaders(proc).look([held(10)]) or ()

    assert tree.blocked is True


def test_reads_of_a_new_worker_count_whole(proc: FakeProc) -> None:
    proc.process(10)
    source = loaders(proc)
    source.look([held(10)])
    proc.process(10, children=[11])
    proc.process(11, io=700)
    trees = [source.look([held(10)]) or () for _ in range(FAMILY_EVERY)]  # families are looked up anew now and then

    assert sum(tree.read_bytes or 0 for (tree,) in trees) == 700


def test_worker_that_ended_takes_nothing_back(proc: FakeProc) -> None:
    proc.process(10, children=[11])
    proc.process(11, io=700)
    source = loaders(proc)
    source.look([held(10)])
    proc.process(10, io=100)
    (tree,) = source.look([held(10)]) or ()

    assert tree.read_bytes == 100


def test_unreadable_io_is_absent_not_zero(proc: FakeProc) -> None:
    proc.process(10, io=None)
    source = loaders(proc)
    source.look([held(10)])
    (tree,) = source.look([held(10)]) or ()

    assert (tree.blocked, tree.on_data_path, tree.read_bytes) == (False, None, None)


def test_one_readable_worker_that_reads_is_enough(proc: FakeProc) -> None:
    proc.process(10, children=[11], io=None)
    proc.process(11, io=5)
    source = loaders(proc)
    source.look([held(10)])
    proc.process(11, io=6)
    (tree,) = source.look([held(10)]) or ()

    assert (tree.on_data_path, tree.read_bytes) == (True, None)


def test_hidden_process_is_a_tree_of_which_nothing_is_known(proc: FakeProc) -> None:
    assert loaders(proc).look([held(99)]) == (TreeReading("pid-99", ("GPU-0",)),)


def test_holder_below_a_holder_is_one_tree_with_both_gpus(proc: FakeProc) -> None:
    proc.process(10, children=[11])
    proc.process(11)
    (tree,) = loaders(proc).look([held(10), held(11, uuid="GPU-1")]) or ()

    assert (tree.id, tree.gpus) == ("pid-10", ("GPU-0", "GPU-1"))


def test_no_holder_is_not_the_same_as_no_list(proc: FakeProc) -> None:
    assert loaders(proc).look([held(processes=0)]) == ()
    assert loaders(proc).look([held(processes=None)]) is None


def test_process_that_the_driver_counts_and_does_not_name_is_a_tree_of_which_nothing_is_known(proc: FakeProc) -> None:
    """Beside those that can be looked at, and where no list could be read for one of the GPUs."""
    proc.process(10)
    source = loaders(proc)

    assert (source.look([held(10, processes=2)]) or ())[1:] == (TreeReading(UNSEEN, ("GPU-0",)),)
    assert (source.look([held(10), held(processes=None, uuid="GPU-1")]) or ())[1:] == (TreeReading(UNSEEN, ("GPU-1",)),)
    assert source.look([held(processes=1)]) == (TreeReading(UNSEEN, ("GPU-0",)),)


@pytest.mark.parametrize(("ticks", "expected"), [(100, (None, None, None, 0.0)), (350, (None, True, None, 2.5))], ids=["quiet as far as seen", "computes"])
def test_kernel_without_lists_of_children_knows_no_quiet_tree(proc: FakeProc, ticks: int, expected: Tuple[object, ...]) -> None:
    proc.process(10, ticks=100)
    (proc.root / "10" / "task" / "10" / "children").unlink()
    source = loaders(proc)
    source.look([held(10)])
    proc.process(10, ticks=ticks)
    (proc.root / "10" / "task" / "10" / "children").unlink()
    (tree,) = source.look([held(10)]) or ()

    assert (tree.blocked, tree.on_data_path, tree.read_bytes, tree.cpu_s) == expected


class Threads:
    """One process with many threads; ``asked`` counts the lists of children that were read."""

    def __init__(self, count: int) -> None:
        self.ids, self.asked = list(range(10, 10 + count)), 0
        self.below: Dict[int, int] = {}  # child and thread

    def threads(self, pid: int) -> Optional[List[int]]:
        return list(self.ids) if pid == 10 else [pid]

    def children_of_thread(self, pid: int, thread: int) -> Optional[List[int]]:
        self.asked += 1
        return [child for child, of in self.below.items() if of == thread]

    def stat(self, pid: int) -> Optional[Stat]:
        return Stat("python", "S", 10, 10, 10, 0, -1, 0, 1) if pid in self.below else None


def test_cost_of_a_process_does_not_grow_with_its_threads() -> None:
    cost = []
    for count in (20, 2000):
        threads = Threads(count)
        families = Families(threads)  # type: ignore[arg-type]
        families.of([10])
        first = threads.asked
        for _ in range(10):
            families.of([10])
        cost.append(threads.asked - first)
        assert first == count

    assert cost[1] <= cost[0] + 10


@pytest.mark.parametrize("thread", [10, 250, 509], ids=["main", "in_the_middle", "last"])
def test_child_of_any_thread_is_found_and_stays_until_it_ends(thread: int) -> None:
    threads = Threads(500)
    families = Families(threads)  # type: ignore[arg-type]
    families.of([10])
    threads.below = {9001: thread}
    looks = 1 + next(n for n in range(500) if 9001 in families.of([10])[10].members)
    stays = [9001 in families.of([10])[10].members for _ in range(200)]
    threads.below = {9001: thread, 9002: thread}
    second = families.of([10])[10].members
    threads.below = {}

    assert looks <= 500 // IN_TURN + 1
    assert all(stays)
    assert second == [10, 9001, 9002]  # a thread that once had a child is asked at every look
    assert families.of([10])[10] == ([10], True)


def test_flood_of_new_threads_is_read_in_part_and_said_to_be() -> None:
    threads = Threads(10)
    families = Families(threads)  # type: ignore[arg-type]
    families.of([10])
    threads.ids = [10, *range(1000, 1500)]
    seen = [families.of([10])[10].whole for _ in range(12)]

    assert (seen[0], seen[-1]) == (False, True)


def test_a_real_process_and_its_child_are_read() -> None:
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'print(1, flush=True); input()'], stdin=0); p.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the child lives
        source = ProcLoaders()
        family = Families(Procs()).of([process.pid])[process.pid].members
        source.look([held(process.pid)])
        (tree,) = source.look([held(process.pid)]) or ()
        process.communicate(b"\n")

    assert len(family) == 2
    assert tree.blocked is not None
    assert tree.cpu_s is not None
    assert tree.cpu_s < 5


LOW, HIGH = (Sample(0, 0.01),), (Sample(0, 0.01), Sample(1, 0.5))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([LOW], True), ([LOW, LOW], True), ([LOW, HIGH], False), ([HIGH, ()], False), ([LOW, ()], None), ([()], None), ([], None)],
    ids=["low", "both_low", "one_high", "high_beside_unknown", "low_beside_unknown", "unknown", "no_gpu"],
)
def test_gpus_stood_low(samples: List[Sequence[Sample]], expected: Optional[bool]) -> None:
    gpus = [GpuReading("GPU-%d" % i, samples=tuple(s)) for i, s in enumerate(samples)]

    assert stood_low([g.uuid for g in gpus], gpus) is expected


def beat(path: Optional[bool], blocked: Optional[bool] = False, read: Optional[int] = 10, cpu: Optional[float] = 1.0) -> TreeReading:
    return TreeReading("pid-1", ("GPU-0",), blocked, path, read, cpu)


FIRST = TreeReading("pid-1", ("GPU-0",), blocked=False)
CASES: Dict[str, object] = {
    "waiting_in_half_of_the_beats": ([(beat(True), True), (beat(False), True)], 0.5),
    "busy_gpu_is_not_waiting": ([(beat(True), False), (beat(True), False)], 0.0),
    "idle_tree_is_not_waiting": ([(beat(False), True)], 0.0),
    "unknown_use_is_no_beat": ([(beat(True), None), (beat(True), True)], 1.0),
    "unknown_path_is_no_beat": ([(beat(None), True), (beat(False), True)], 0.0),
    "mostly_unknown_is_absent": ([(beat(None), True), (beat(None), True), (beat(True), True)], None),
    "all_unknown_is_absent": ([(beat(None), None)], None),
    "nothing_seen_is_absent": ([], None),
}


@pytest.mark.parametrize("name", CASES)
def test_wait_ratio(name: str) -> None:
    beats, expected = CASES[name]  # type: ignore[misc]
    span = TreeSpan()
    for tree, low in beats:
        span = span.add(tree, low)

    assert span.close("pid-1", 60.0).wait_ratio == expected


def test_sums_over_the_window_leave_out_the_first_sight() -> None:
    span = TreeSpan().add(FIRST, True).add(beat(True, True), True).add(beat(True), True)
    loader = span.close("pid-1", 4.0)

    assert (loader.read_bytes, loader.cpu_cores, loader.blocked_ratio) == (20, 0.5, 0.3333)


def test_hole_in_the_sums_makes_them_absent() -> None:
    loader = TreeSpan().add(beat(True), True).add(beat(True, read=None, cpu=None), True).close("pid-1", 4.0)

    assert (loader.read_bytes, loader.cpu_cores) == (None, None)


def test_tree_seen_only_once_has_no_sums() -> None:
    loader = TreeSpan().add(FIRST, True).close("pid-1", 4.0)

    assert (loader.read_bytes, loader.cpu_cores, loader.wait_ratio) == (None, None, None)


def working(pid: int) -> GpuReading:
    return replace(held(pid), samples=HIGH)


def test_tree_whose_gpus_work_is_read_at_every_third_look_and_nothing_it_did_is_lost(proc: FakeProc) -> None:
    source = loaders(proc)
    span = TreeSpan()
    for beat in range(10):
        proc.process(10, io=1000 * beat, ticks=100 * beat)
        (tree,) = source.look([working(10)]) or ()
        span = span.add(tree, stood_low(tree.gpus, [working(10)]))
    loader = span.close("pid-10", 50.0)

    assert (span.beats, span.known, span.waited) == (10, 9, 0)  # the first sight knows no growth
    assert (loader.wait_ratio, loader.read_bytes, loader.cpu_cores) == (0.0, 9000, pytest.approx(9 * 100 / 100 / 50.0))


def test_tree_that_begins_to_wait_is_read_at_once(proc: FakeProc) -> None:
    source = loaders(proc)
    proc.process(10)
    source.look([working(10)])
    skipped = source.look([working(10)])
    proc.process(10, state="D")
    (tree,) = source.look([held(10)]) or ()

    assert [one.skipped for one in skipped or ()] == [True]
    assert (tree.skipped, tree.blocked, tree.on_data_path) == (False, True, True)


def test_birth_of_a_holder_is_known_at_skipped_looks_too(proc: FakeProc) -> None:
    source = loaders(proc)
    proc.process(10)
    births = []
    for _ in range(4):
        source.look([working(10)])
        births.append(source.born(10))

    assert len(set(births)) == 1
    assert births[0] is not None
