"""What counts as standing on the data path: the signs one by one, the field's cases, and real processes that really wait."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.ambient import Ambient, pressure_s
from agent.datapath import Evidence, EvidenceSum, on_data_path, signs
from agent.disks import LocalDisks
from agent.loader import LOW_RATIO, ProcLoaders, TreeSpan, low_share, stood_low
from agent.readings import GpuReading, Sample, TreeReading
from tests.agent.test_loader import FakeProc
from tests.fakes import fuse

KIB, MIB = 1 << 10, 1 << 20

QUIET = Evidence(
    5.0, blocked=False, complete=True, read_bytes=0, read_calls=0, called_bytes=0, write_bytes=0, put_bytes=0, cpu_s=0.0, worker_cpu_s=0.0,
    delayed_s=0.0, stalled_s=0.0, host_stalled_s=0.0, host_received_bytes=0,
)  # fmt: skip


def seen(**changes: Any) -> Evidence:
    return replace(QUIET, **changes)


# What programs look like from outside, in one beat of five seconds in which their GPUs stood low.
LOOKS: Dict[str, Tuple[Evidence, Optional[bool]]] = {
    # waiting for data
    "PyTorch workers decode on all cores": (seen(cpu_s=38.0, worker_cpu_s=37.5), True),
    "one worker that computes a little": (seen(cpu_s=1.1, worker_cpu_s=1.1), True),
    "threads of TensorFlow or JAX decode in the process itself": (seen(cpu_s=12.0), True),
    "DALI decodes in threads and reads from a disk": (seen(cpu_s=2.0, read_bytes=300 * MIB, called_bytes=300 * MIB), True),
    "reads from a disk that the page cache does not hold": (seen(read_bytes=1), True),
    "reads out of the page cache": (seen(called_bytes=40 * MIB, read_calls=900), True),
    "a worker in state D on an NFS mount, with idle CPUs": (seen(blocked=True), True),
    "a slow FUSE mount, of which storage's own count knows nothing": (seen(called_bytes=200 * KIB, read_calls=4), True),
    "a slow pipe": (seen(called_bytes=200 * KIB, read_calls=50), True),
    "an object store over the network, by a client in the process": (seen(host_received_bytes=30 * MIB, cpu_s=0.4), True),
    "waits for a disk that the kernel accounts": (seen(delayed_s=3.0), True),
    "waits for a disk, seen by its control group's pressure": (seen(stalled_s=2.0), True),
    # long phases without the GPU
    "a long checkpoint to a disk": (seen(write_bytes=400 * MIB, put_bytes=400 * MIB), True),
    "a long checkpoint to a mount": (seen(put_bytes=90 * MIB), True),
    "the end of a checkpoint, in fsync": (seen(blocked=True), True),
    "preprocessing on one core": (seen(cpu_s=5.0), True),
    "compilation in thirty processes": (seen(cpu_s=150.0, worker_cpu_s=150.0), True),
    "downloads its weights": (seen(host_received_bytes=500 * MIB, cpu_s=1.5, put_bytes=500 * MIB), True),
    # idle
    "nothing at all": (QUIET, False),
    "a notebook's server": (seen(cpu_s=0.04, called_bytes=4 * KIB, read_calls=60), False),
    "a notebook that saves itself": (seen(cpu_s=0.05, write_bytes=300 * KIB, put_bytes=300 * KIB), False),
    "a logger that reads /proc every few seconds": (seen(cpu_s=0.03, called_bytes=60 * KIB, read_calls=40), False),
    "the machine downloads, and the tree sleeps": (seen(host_received_bytes=500 * MIB), False),
    "the machine waits for a disk, and the tree sleeps": (seen(host_stalled_s=5.0), False),
    # not to be seen
    "another user's processes": (seen(complete=False, read_bytes=None, read_calls=None, called_bytes=None, write_bytes=None, put_bytes=None), None),
    "some hidden, and one that reads": (seen(complete=False, read_bytes=5), True),
    "some hidden, and the others quiet": (seen(complete=False), None),
    "hidden, and computes": (Evidence(5.0, blocked=False, cpu_s=5.0), True),
    "the holder itself is hidden": (seen(blocked=None), None),
    "all that is optional is missing": (seen(delayed_s=None, stalled_s=None, host_stalled_s=None, host_received_bytes=None, read_calls=None), False),
    "nothing is known": (Evidence(5.0), None),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKS)
def test_stands_on_its_data_path(name: str) -> None:
    evidence, expected = LOOKS[name]

    assert on_data_path(evidence) is expected


FIGURES = [field.name for field in fields(Evidence) if field.name not in ("for_s", "blocked", "complete")]


@given(st.data(), st.sampled_from([evidence for evidence, _ in LOOKS.values()]), st.sampled_from(FIGURES))
def test_what_cannot_be_read_never_makes_a_sign_and_more_never_takes_one_away(data: Any, evidence: Evidence, name: str) -> None:
    without, value = replace(evidence, **{name: None}), getattr(evidence, name) or 0
    more = replace(evidence, **{name: value + data.draw(st.integers(0, 10**9))})

    assert set(signs(without)) <= set(signs(evidence)) <= set(signs(more))


@given(st.floats(0.01, 60.0))
def test_the_same_work_in_a_longer_look_says_the_same(for_s: float) -> None:
    for evidence, expected in LOOKS.values():
        if evidence.read_bytes in (0, None):
            scale = for_s / evidence.for_s
            again = {name: getattr(evidence, name) * scale for name in FIGURES if getattr(evidence, name) is not None}
            assert on_data_path(replace(evidence, for_s=for_s, **again)) is expected


def test_sums_and_shares_on_the_wire() -> None:
    told = EvidenceSum().add(seen(read_calls=3, stalled_s=2.5, worker_cpu_s=4.0)).add(seen(read_calls=4, host_received_bytes=10 * MIB)).on_the_wire()

    assert (told["read_calls"], told["io_pressure_ratio"], told["worker_cpu_cores"], told["host_received_bytes_per_s"]) == (7, 0.25, 0.4, MIB)


@pytest.mark.parametrize("name", FIGURES)
def test_sum_that_lacks_a_part_is_absent(name: str) -> None:
    told = EvidenceSum().add(QUIET).add(replace(QUIET, **{name: None})).on_the_wire()

    assert sum(value is None for value in told.values()) == (name not in ("read_bytes", "put_bytes", "cpu_s"))


def test_counts_of_which_some_processes_said_nothing_are_absent() -> None:
    told = EvidenceSum().add(seen(complete=False, read_calls=5)).on_the_wire()

    assert (told["read_calls"], told["write_bytes"], told["worker_cpu_cores"]) == (None, None, 0.0)
    assert EvidenceSum().on_the_wire() == {}


# --- the kernel's files ---


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_received_bytes_are_those_of_interfaces_with_hardware(tmp_path: Path) -> None:
    lines = "Inter-|\n face |bytes\n    lo: 900 1 0\n  eth0: 700 1 0 0 0 0 0 0 5 5\ndocker0: 50 0 0\n"
    write(tmp_path / "proc" / "net" / "dev", lines)
    (tmp_path / "sys" / "class" / "net" / "eth0" / "device").mkdir(parents=True)

    assert Ambient(tmp_path / "proc", tmp_path / "sys").read().received_bytes == 700
    assert Ambient(tmp_path / "proc", tmp_path / "nowhere").read().received_bytes == 750


@pytest.mark.parametrize(
    ("text", "expected"),
    [("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.0 total=7\n", 2.5), ("", None), ("nonsense total=5\n", None), ("some total=x\n", None)],
)
def test_pressure_is_optional(tmp_path: Path, text: str, expected: Optional[float]) -> None:
    write(tmp_path / "io", text)

    assert pressure_s(str(tmp_path / "io")) == expected
    assert pressure_s(str(tmp_path / "absent")) is None


@pytest.mark.parametrize(("text", "expected"), [("1\n", True), ("0\n", False), (None, False), ("", False)])
def test_waits_are_believed_only_where_the_kernel_accounts_them(tmp_path: Path, text: Optional[str], expected: bool) -> None:
    if text is not None:
        write(tmp_path / "sys" / "kernel" / "task_delayacct", text)

    assert Ambient(tmp_path).blocked_is_accounted() is expected


def machine(tmp_path: Path, accounted: str = "0") -> Tuple[FakeProc, ProcLoaders, List[float]]:
    write(tmp_path / "sys" / "kernel" / "task_delayacct", accounted)
    now = [0.0]
    return FakeProc(tmp_path), ProcLoaders(tmp_path, 100, Ambient(tmp_path, tmp_path / "sys"), lambda: now[0]), now


GPU = GpuReading("GPU-0", pids=(10,), processes=1, samples=(Sample(0.0, 0.0),))


def test_constant_zero_of_a_kernel_that_does_not_account_is_absent(tmp_path: Path) -> None:
    for accounted, expected in (("0", None), ("1", 0.0)):
        proc, source, now = machine(tmp_path / accounted, accounted)
        proc.process(10)
        source.look([GPU])
        now[0] = 5.0
        (tree,) = source.look([GPU]) or ()

        assert tree.evidence is not None
        assert tree.evidence.delayed_s == expected


def test_kernel_threads_in_state_d_are_nobodys_wait(tmp_path: Path) -> None:
    """They have hung there for days on healthy machines; only a GPU's own processes count."""
    proc, source, now = machine(tmp_path)
    proc.process(2, name="kthreadd", children=[33, 34])
    for pid in (33, 34):
        proc.process(pid, state="D", name="kworker/0:1")
    proc.process(10)
    write(tmp_path / "loadavg", "9.0 9.0 9.0 1/500 1\n")
    source.look([GPU])
    now[0] = 5.0
    (tree,) = source.look([GPU]) or ()

    assert (tree.blocked, tree.on_data_path) == (False, False)


def test_state_d_of_a_process_that_holds_the_gpu_with_idle_cpus_is_a_wait(tmp_path: Path) -> None:
    proc, source, now = machine(tmp_path)
    proc.process(10, state="D")
    source.look([GPU])
    span = TreeSpan()
    for _ in range(3):
        now[0] += 5.0
        (tree,) = source.look([GPU]) or ()
        span = span.add(tree, True)

    assert span.close("pid-10", 15.0).wait_ratio == 1.0


def test_workers_cpu_is_told_beside_the_trees(tmp_path: Path) -> None:
    proc, source, now = machine(tmp_path)
    proc.process(10, children=[11])
    proc.process(11)
    source.look([GPU])
    now[0] = 10.0
    proc.process(10, children=[11], ticks=100)
    proc.process(11, ticks=900)
    (tree,) = source.look([GPU]) or ()
    loader = TreeSpan().add(tree, True).close("pid-10", 10.0)

    assert (loader.cpu_cores, loader.worker_cpu_cores, loader.wait_ratio) == (1.0, 0.9, 1.0)


def test_thread_asleep_in_a_mount_is_found_and_asked_for_only_now_and_then(tmp_path: Path) -> None:
    proc, source, now = machine(tmp_path)
    proc.process(10)
    write(tmp_path / "10" / "task" / "12" / "wchan", "request_wait_answer")
    write(tmp_path / "10" / "task" / "12" / "children", "")
    found = []
    for _ in range(9):
        now[0] += 5.0
        (tree,) = source.look([GPU]) or ()
        found.append((tree.blocked, tree.on_data_path))
        write(tmp_path / "10" / "task" / "12" / "wchan", "futex_wait_queue")

    assert found[0] == (True, True)
    assert found[-1] == (False, False)
    assert found.count((True, True)) == 6


@pytest.mark.parametrize("where", ["do_epoll_wait", "futex_wait_queue", "anon_pipe_read", "unix_stream_read_generic", "wait_woken", "hrtimer_nanosleep", "0", ""])
def test_thread_that_sleeps_where_idle_programs_sleep_is_no_sign(tmp_path: Path, where: str) -> None:
    proc, source, now = machine(tmp_path)
    proc.process(10)
    write(tmp_path / "10" / "task" / "10" / "wchan", where)
    source.look([GPU])
    now[0] = 5.0
    (tree,) = source.look([GPU]) or ()

    assert (tree.blocked, tree.on_data_path) == (False, False)


def test_tree_whose_gpus_work_is_never_asked_for_sleepers(tmp_path: Path) -> None:
    proc, source, now = machine(tmp_path)
    proc.process(10)
    write(tmp_path / "10" / "task" / "10" / "wchan", "request_wait_answer")
    busy = replace(GPU, samples=(Sample(0.0, 0.9),))
    for _ in range(4):
        now[0] += 5.0
        (tree,) = source.look([busy]) or ()

        assert tree.blocked in (False, None)


def test_remote_mounts_are_never_asked_for_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer would hang the agent, which then looks dead."""

    def forbidden(*_: object) -> None:
        raise AssertionError("a mount was asked")

    monkeypatch.setattr(os, "statvfs", forbidden)
    monkeypatch.setattr(os, "stat", forbidden)
    proc, source, now = machine(tmp_path)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text("30 1 0:50 / /mnt rw - nfs4 server:/x rw\n31 1 0:51 / /data rw - fuse.s3 s3 rw\n")
    LocalDisks(tmp_path / "sys", tmp_path, tmp_path / "dev").read(0.0, 0.0)
    Ambient(tmp_path, tmp_path / "sys").read()
    monkeypatch.undo()


def test_spikes_are_work_and_what_lies_between_them_is_the_wait() -> None:
    """Four batches, then a long gap."""
    spiky = [GpuReading("GPU-0", samples=(Sample(0.0, 0.0), Sample(1.0, LOW_RATIO), Sample(2.0, 0.0)))]
    gap = [GpuReading("GPU-0", samples=(Sample(0.0, 0.0),))]
    tree = TreeReading("pid-10", ("GPU-0",), False, True, 0, 1.0, evidence=QUIET)
    span = TreeSpan()
    for gpus in [spiky, gap, gap, gap]:
        span = span.add(tree, low_share(tree.gpus, gpus))

    assert span.close("pid-10", 20.0).wait_ratio == pytest.approx((2 / 3 + 3) / 4, abs=1e-4)
    assert stood_low(tree.gpus, spiky) is False  # and so no idle beat


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([[Sample(0, 0.9, 10, 1.8, 8), Sample(1, 0.0)]], 9 / 11),
        ([[Sample(0, 0.0, 10)]], 1.0),
        ([[Sample(0, 0.6, 10, 6.0, 0)]], 0.0),
        ([[Sample(0, 0.0, 4)], [Sample(0, 0.9, 4, 0.9, 3)]], 0.75),
        ([[Sample(0, 0.9, 4, 3.6, 0)], []], 0.0),
        ([[Sample(0, 0.0, 4)], []], None),
        ([], None),
    ],
    ids=["computes now and then", "never computes", "always a little", "of two the busier", "one busy beside one unknown", "one low beside one unknown", "no gpu"],
)
def test_share_of_a_beat_in_which_the_gpus_stood_low(samples: List[List[Sample]], expected: Optional[float]) -> None:
    gpus = [GpuReading("GPU-%d" % i, samples=tuple(s)) for i, s in enumerate(samples)]

    assert low_share([gpu.uuid for gpu in gpus], gpus) == expected


def test_beats_that_were_not_looked_at_wait_as_the_next_look_says() -> None:
    def look(path: Optional[bool], skipped: bool = False) -> TreeReading:
        return TreeReading("pid-10", ("GPU-0",), None if skipped else False, path, 0, 0.0, skipped=skipped)

    def ratio(path: bool) -> Optional[float]:
        span = TreeSpan().add(look(path), 0.5)
        for tree in (look(None, True), look(None, True), look(path)):
            span = span.add(tree, 0.5)
        return span.close("pid-10", 20.0).wait_ratio

    assert (ratio(True), ratio(False)) == (0.5, 0.0)


def test_beats_that_were_not_looked_at_stay_unknown_where_the_next_look_cannot_say() -> None:
    """Its GPUs stood low for most of them: they are no quiet beats for that."""
    skipped, unknown = TreeReading("pid-10", ("GPU-0",), skipped=True), TreeReading("pid-10", ("GPU-0",), False, None, None, 0.0)
    span = TreeSpan()
    for tree in (skipped, skipped, unknown) * 4:
        span = span.add(tree, 0.9)

    assert span.close("pid-10", 60.0).wait_ratio is None


def test_beats_after_the_last_look_are_left_out() -> None:
    waiting, skipped = TreeReading("pid-10", ("GPU-0",), False, True, 1, 0.0), TreeReading("pid-10", ("GPU-0",), skipped=True)
    span = TreeSpan().add(waiting, 0.5).add(skipped, 0.9).add(skipped, 0.9)

    assert span.close("pid-10", 15.0).wait_ratio == 0.5


def test_beat_that_was_not_looked_at_beside_a_gpu_of_unknown_use_is_no_quiet_one() -> None:
    span = TreeSpan().add(TreeReading("pid-10", ("GPU-0", "GPU-1"), skipped=True), None)

    assert (span.beats, span.known) == (1, 0)


def test_tree_that_was_not_seen_whole_has_no_sums_that_read_as_little(tmp_path: Path) -> None:
    """The kernel keeps no lists of children here, so that its workers may be missing."""
    proc, source, now = machine(tmp_path)
    for at_s in (0.0, 5.0, 10.0):
        now[0] = at_s
        proc.process(10, io=int(at_s) * MIB, ticks=int(at_s) * 100)
        (tmp_path / "10" / "task" / "10" / "children").unlink()
        (tree,) = source.look([GPU]) or ()
    loader = TreeSpan().add(tree, True).close("pid-10", 5.0)

    assert (tree.on_data_path, loader.wait_ratio, loader.cpu_cores) == (True, 1.0, 1.0)
    assert (loader.read_bytes, loader.read_calls, loader.called_bytes, loader.write_bytes, loader.worker_cpu_cores, loader.delayed_ratio) == (None,) * 6


# --- real processes that really wait ---

WORKERS = """
import multiprocessing
def work(_):
    while True: sum(range(1000))
if __name__ == "__main__":
    multiprocessing.get_context("fork").Pool(2).map(work, range(2))
"""
READ_STDIN = "import sys\nwhile sys.stdin.buffer.raw.read(65536): pass"
READ_FILE = "import sys\nf = open(sys.argv[1], 'rb', buffering=0)\nwhile f.read(65536): pass"
READ_FILE_IN_A_THREAD = (
    "import sys, threading, time\ndef go():\n    f = open(sys.argv[1], 'rb', buffering=0)\n    while f.read(65536): pass\n"
    "threading.Thread(target=go, daemon=True).start()\ntime.sleep(600)"
)
FSYNC = (
    "import os, sys\nf = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
    "while True:\n    os.pwrite(f, os.urandom(1 << 21), 0)\n    os.fsync(f)"
)
FEED = "import sys, time\nwhile True:\n    sys.stdout.buffer.write(b'x' * 32768)\n    sys.stdout.flush()\n    time.sleep(0.1)"
IDLE = "input()"


@contextlib.contextmanager
def running(code: str, *arguments: str, **more: Any) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], start_new_session=True, **more)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def looked_at(pid: int, good: Callable[[TreeReading], bool], looks: int = 40, after: int = 3) -> List[TreeReading]:
    """Looks at a real tree whose GPU stands low until one look is as wanted."""
    source = ProcLoaders()
    gpu = GpuReading("GPU-0", pids=(pid,), processes=1, samples=(Sample(0.0, 0.0),))
    found: List[TreeReading] = []
    for n in range(looks):
        time.sleep(0.15)
        (tree,) = source.look([gpu]) or ()
        found.append(tree)
        if n >= after and good(tree):
            break
    return found


def on_path(tree: TreeReading) -> bool:
    return tree.on_data_path is True


def test_real_slow_pipe_is_a_wait() -> None:
    with running(FEED, stdout=subprocess.PIPE) as feed, running(READ_STDIN, stdin=feed.stdout) as reader:
        last = looked_at(reader.pid, lambda tree: tree.evidence is not None and "reading" in signs(tree.evidence))[-1]

    assert on_path(last)
    assert last.evidence is not None
    assert (last.evidence.read_calls or 0) > 0


def test_real_pool_of_busy_workers_is_a_wait(tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(WORKERS)
    with running("import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')", str(script)) as pool:
        last = looked_at(pool.pid, lambda tree: tree.evidence is not None and (tree.evidence.worker_cpu_s or 0.0) > 0.03)[-1]

    assert on_path(last)


def test_real_fsync_after_fsync_is_a_wait(tmp_path: Path) -> None:
    with running(FSYNC, str(tmp_path / "checkpoint")) as writer:
        found = looked_at(writer.pid, on_path)

    assert on_path(found[-1])


def test_real_slow_fuse_mount_is_a_wait_and_a_stopped_one_still_is(tmp_path: Path) -> None:
    with fuse.mounted(tmp_path / "mount", bytes_per_s=400_000) as mount, running(READ_FILE, str(mount.file)) as reader:
        slow = looked_at(reader.pid, on_path)[-1]
        with mount.stopped():
            time.sleep(0.3)
            stopped = looked_at(reader.pid, lambda tree: False, looks=4)

    assert on_path(slow)
    assert [on_path(tree) for tree in stopped[1:]] == [True] * 3
    assert stopped[-1].evidence is not None
    assert (stopped[-1].read_bytes, stopped[-1].evidence.called_bytes) == (0, 0)  # nothing else would have shown it


def test_real_thread_that_waits_for_a_stopped_mount_is_a_wait(tmp_path: Path) -> None:
    """As frameworks read that load their data in threads: the process itself only sleeps."""
    with fuse.mounted(tmp_path / "mount", bytes_per_s=400_000) as mount, running(READ_FILE_IN_A_THREAD, str(mount.file)) as reader:
        looked_at(reader.pid, on_path)
        with mount.stopped():
            time.sleep(0.3)
            stopped = looked_at(reader.pid, lambda tree: False, looks=3)

    assert on_path(stopped[-1])


def test_real_idle_process_is_no_wait() -> None:
    with running(IDLE, stdin=subprocess.PIPE) as idle:
        time.sleep(0.5)
        found = looked_at(idle.pid, lambda tree: False, looks=5)

    assert [tree.on_data_path for tree in found[2:]] == [False] * 3
