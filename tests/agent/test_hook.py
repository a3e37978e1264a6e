"""The agent's end of the hook: who may say what about whom, what silence is believed, and that nobody can do more than that."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import hook
from agent.build import OpenWindow
from agent.datapath import Exact
from agent.hook import INSIDE_FOR_S, MOST_BYTES, MOST_LATE_S, Datagram, HookedLoaders, Malformed, Socket, Waits, read
from agent.loader import MOST_OFF_GPU, MOST_TREES, ProcLoaders, TreeSpan
from agent.loader_hook import DATAGRAM, MAGIC
from agent.readings import GpuReading, GpuSnapshot, Reading, Sample, TreeReading
from agent.report import Loader
from tests.agent.doubles import Lines

ROOT = Path(__file__).resolve().parents[2]


def body(inside: int = 0, run: int = 7, at_s: float = 100.0, wait_s: float = 1.0, batches: int = 3, magic: bytes = MAGIC) -> bytes:
    return DATAGRAM.pack(magic, inside, run, at_s, wait_s, batches)


@pytest.fixture
def door(tmp_path: Path, log: Lines) -> Iterator[Socket]:
    made = Socket(tmp_path / "run" / "hook.sock", log)
    assert made.open()
    yield made
    made.close()


def send(door: Socket, what: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(what, str(door._path))


# --- what one datagram may be ---

NAN, INF = float("nan"), float("inf")
MALFORMED: Dict[str, Tuple[bytes, int, str]] = {
    "empty": (b"", 10, "too short"),
    "cut off": (body()[:-1], 10, "too short"),
    "too long": (body() + b"x" * MOST_BYTES, 10, "too long"),
    "another's": (body(magic=b"GET "), 10, "not ours"),
    "text": (b"\x00<script>alert(1)</script>" * 4, 10, "not ours"),
    "no number": (body(wait_s=NAN), 10, "no such figures"),
    "no number of a clock": (body(at_s=NAN), 10, "no such figures"),
    "endless": (body(at_s=INF, wait_s=INF), 10, "no such figures"),
    "waited less than nothing": (body(wait_s=-1.0), 10, "no such figures"),
    "waited since before there was time": (body(at_s=5.0, wait_s=6.0), 10, "no such figures"),
    "more batches than there can be": (body(batches=2**63), 10, "no such figures"),
    "of a process that we cannot see": (body(), 0, "nobody's"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_datagram_is_refused_in_our_own_words(name: str) -> None:
    what, pid, why = MALFORMED[name]

    with pytest.raises(Malformed, match=why):
        read(what, pid, 1000)


def test_newer_hook_may_say_more() -> None:
    assert read(body(inside=3) + b"more", 10, 1000) == Datagram(10, 1000, True, 7, 100.0, 1.0, 3)


@given(st.binary(max_size=MOST_BYTES + 40), st.integers(-1, 2**31 - 1))
def test_no_datagram_does_more_than_be_dropped(what: bytes, pid: int) -> None:
    for one in (what, MAGIC + what):
        with contextlib.suppress(Malformed):
            Waits().take(read(one, pid, 0), 100.0)


# --- who says it ---


def test_the_kernel_says_who_speaks(door: Socket) -> None:
    code = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'hello', sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", code, str(door._path)]) as process:
        process.wait()
    came, unsigned = door.take()

    assert came == [(b"hello", process.pid, os.getuid())]
    assert unsigned == 0


def test_process_of_another_user_cannot_speak_for_another_process(log: Lines) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: to become another user")
    folder = Path(tempfile.mkdtemp(prefix="hook-"))
    folder.chmod(0o755)
    door = Socket(folder / "hook.sock", log)
    assert door.open()
    code = (
        "import os, socket, struct, sys\nos.setgid(65534); os.setuid(65534)\n"
        "out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\nout.connect(sys.argv[1])\n"
        "try:\n    out.sendmsg([b'I am init'], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack('3i', 1, 0, 0))])\n"
        "except PermissionError:\n    out.send(b'I am me')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(door._path)]) as done:
        done.wait()
    came = door.take()[0]
    door.close()
    folder.rmdir()

    assert came == [(b"I am me", done.pid, 65534)]


def test_process_of_a_container_is_known_by_its_number_here(door: Socket) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare: a pid namespace")
    code = "import os, socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'%d' % os.getpid(), sys.argv[1])"
    with subprocess.Popen(["unshare", "--pid", "--fork", sys.executable, "-c", code, str(door._path)]) as outer:
        outer.wait()
    ((said, pid, _),) = door.take()[0]

    assert said == b"1"  # what it believes itself to be
    assert pid > outer.pid


def test_descriptors_that_come_along_are_not_taken(door: Socket, tmp_path: Path) -> None:
    import array

    with open(tmp_path / "gift", "w") as gift, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect(str(door._path))
        out.sendmsg([body()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [gift.fileno()] * 20))])
        before = set(os.listdir("/proc/self/fd"))
        came, _ = door.take()

        assert len(came) == 1
        assert set(os.listdir("/proc/self/fd")) == before


def test_flood_is_bounded_at_a_beat(door: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "MOST_DATAGRAMS", 3)
    for _ in range(5):
        send(door, b"x")

    assert (len(door.take()[0]), len(door.take()[0])) == (3, 2)


# --- the socket itself ---


def test_socket_of_an_agent_that_died_is_taken_over(tmp_path: Path, log: Lines) -> None:
    path = tmp_path / "hook.sock"
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(path))
    dead.close()
    door = Socket(path, log)

    assert door.open()
    send(door, b"x")
    assert len(door.take()[0]) == 1
    door.close()
    assert not path.exists()


def test_socket_that_another_agent_reads_and_what_is_no_socket_stay(door: Socket, tmp_path: Path, log: Lines) -> None:
    file = tmp_path / "precious"
    file.write_text("keep me")

    assert not Socket(door._path, log).open()
    assert not Socket(file, log).open()
    assert not Socket(tmp_path / ("x" * 200), log).open()
    assert not Socket(file / "below" / "a file", log).open()
    assert file.read_text() == "keep me"
    assert log.events() == ["hook socket not opened"] * 4
    send(door, b"still ours")
    assert len(door.take()[0]) == 1


def test_every_user_can_reach_it_whatever_the_umask(tmp_path: Path, log: Lines) -> None:
    before = os.umask(0o077)
    try:
        door = Socket(tmp_path / "made" / "hook.sock", log)
        assert door.open()
    finally:
        os.umask(before)

    assert (door._path.parent.stat().st_mode & 0o777, door._path.stat().st_mode & 0o777) == (0o755, 0o666)
    door.close()


def test_path_that_became_anothers_is_not_taken_away(door: Socket, log: Lines) -> None:
    door._path.unlink()
    other = Socket(door._path, log)
    other.open()
    door.close()

    assert other._path.exists()
    other.close()


# --- what they add up to ---


def said(at_s: float, wait_s: float, batches: int = 0, inside: bool = False, run: int = 1, pid: int = 10, uid: int = 1000) -> Datagram:
    return Datagram(pid, uid, inside, run, at_s, wait_s, batches)


class Told:
    """Looks every ``beat_s`` seconds of a monotonic clock and adds up what it is told of process 10."""

    def __init__(self, beat_s: float = 5.0) -> None:
        self.waits, self.beat_s = Waits(), beat_s
        self.now_s = 0.0
        self.lives = True
        self.covered_s = self.wait_s = 0.0
        self.batches = 0

    def look(self, *datagrams: Datagram) -> Tuple[float, float]:
        self.now_s += self.beat_s
        for one in datagrams:
            self.waits.take(one, self.now_s)
        told = [one for one in self.waits.look(self.now_s, self.beat_s, lambda pid: self.lives) if one.pid == 10]
        for one in told:
            assert 0.0 <= one.wait_s <= one.covered_s
            self.covered_s, self.wait_s, self.batches = self.covered_s + one.covered_s, self.wait_s + one.wait_s, self.batches + one.batches
        return (round(told[0].covered_s, 3), round(told[0].wait_s, 3)) if told else (0.0, 0.0)


def test_what_lies_between_two_datagrams_is_told_whole() -> None:
    told = Told()

    assert told.look(said(1.0, 50.0, 10)) == (1.0, 0.0)  # what it waited before we knew it is not this window's
    assert told.look(said(9.0, 54.0, 30)) == (8.0, 4.0)
    assert told.look() == (0.0, 0.0)
    assert told.batches == 20


def test_datagram_that_was_lost_loses_nothing() -> None:
    told = Told()
    told.look(said(0.5, 0.0))
    told.look()
    told.look(said(14.0, 7.0))

    assert (told.covered_s, told.wait_s) == (14.5, 7.0)


def test_job_that_does_not_come_out_of_its_loader_waits_all_the_while() -> None:
    told = Told()
    told.look(said(1.0, 0.0, inside=True))

    assert [told.look() for _ in range(3)] == [(5.0, 5.0)] * 3
    assert told.look(said(19.0, 18.0, 1)) == (0.0, 0.0)  # told already, up to a second
    assert (told.covered_s, told.wait_s) == (19.0, 19.0)


def test_what_was_believed_wrongly_is_taken_back_from_what_comes_next() -> None:
    told = Told()
    told.look(said(1.0, 0.0, inside=True))  # out of it a moment later, with nothing to say for half a minute
    for _ in range(5):
        told.look()
    told.look(said(31.0, 0.5, 1, inside=True))
    for at_s in range(32, 100, 5):
        told.look(said(at_s, 0.5 + 0.9 * (at_s - 31), 100))

    assert told.wait_s == pytest.approx(0.5 + 0.9 * (97 - 31), abs=5.0)


def test_silence_is_not_believed_for_ever() -> None:
    told = Told(beat_s=60.0)
    told.look(said(59.0, 0.0, inside=True))
    for _ in range(100):
        told.look()

    assert told.wait_s <= INSIDE_FOR_S + 60.0
    assert told.waits._senders == {}


def test_job_that_ended_inside_its_loader_waits_no_more() -> None:
    told = Told()
    told.look(said(4.5, 0.0, inside=True))
    told.lives = False
    told.look()
    before = told.wait_s
    told.look()

    assert told.wait_s == before <= 5.0


def test_what_is_told_after_hours_is_not_all_of_this_window() -> None:
    told = Told(beat_s=300.0)
    told.look(said(299.0, 0.0))
    for _ in range(8):
        told.look()

    assert told.look(said(2999.0, 1350.0)) == (MOST_LATE_S, pytest.approx(60.0, abs=0.1))


def test_run_that_starts_anew_starts_anew() -> None:
    told = Told()
    told.look(said(1.0, 100.0, 9000))
    told.look(said(6.0, 3.0, 5, run=2))

    assert told.look(said(11.0, 5.0, 9, run=2))[1] == 2.0
    assert told.waits.dropped == {}


@pytest.mark.parametrize(
    ("second", "why"),
    [(said(0.5, 2.0), "contradicts"), (said(9.0, 0.0), "contradicts"), (said(9.0, 100.0), "contradicts"), (said(9.0, 2.0, -1), "contradicts")],
    ids=["its clock went back", "it waited less than before", "it waited longer than time went by", "fewer batches"],
)
def test_sender_that_contradicts_itself_is_not_believed(second: Datagram, why: str) -> None:
    told = Told()
    told.look(said(1.0, 1.0))
    told.look(second)

    assert list(told.waits.dropped) == ["contradicts itself"]
    assert told.wait_s == 0.0


def test_clock_of_its_own_is_placed_at_the_look() -> None:
    told = Told()
    told.look(said(1e6, 3.0))
    told.look(said(1e6 + 5, 7.0))

    assert (told.covered_s, told.wait_s) == (5.0, 4.0)


def test_sender_who_speaks_too_often_is_heard_at_its_rate() -> None:
    told = Told()
    told.look(said(0.1, 0.0))
    told.look(*(said(5.0 + n / 1000, 0.0) for n in range(100)))

    assert told.waits.dropped["too often"] > 80


def test_one_user_cannot_take_every_place() -> None:
    waits = Waits()
    for pid in range(1, 400):
        waits.take(said(100.0, 0.0, pid=pid, uid=666), 100.0)
    waits.take(said(100.0, 0.0, pid=1000, uid=1000), 100.0)

    assert (len(waits._senders), waits.dropped) == (hook.MOST_OF_A_USER + 1, {"too many senders": 399 - hook.MOST_OF_A_USER})


def test_silent_ones_make_room() -> None:
    waits = Waits()
    for pid in range(1, hook.MOST_OF_A_USER + 1):
        waits.take(said(100.0, 0.0, pid=pid), 100.0)
    waits.take(said(300.0, 0.0, pid=1000), 300.0)

    assert 1000 in waits._senders
    assert waits.dropped == {}


PHASES = st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 30.0)), min_size=1, max_size=30)


@given(PHASES, st.sampled_from([0.5, 5.0, 20.0]), st.data())
def test_told_wait_comes_to_the_real_one_whatever_is_lost(phases: List[Tuple[float, float]], beat_s: float, data: Any) -> None:
    """Waits and work in turn, with a datagram where the job has one to send; any of them may be lost but the last."""
    at_s = wait_s = 0.0
    sent: List[Datagram] = [said(0.0, 0.0)]
    for n, (waited_s, worked_s) in enumerate(phases):
        sent.append(said(at_s, wait_s, n, inside=True))
        at_s, wait_s = at_s + waited_s, wait_s + waited_s
        sent.append(said(at_s, wait_s, n + 1))
        at_s += worked_s
    kept = [sent[0], *(one for one in sent[1:-1] if data.draw(st.booleans())), sent[-1]]
    told = Told(beat_s)
    told.waits.take(kept.pop(0), 0.0)
    heard = int(hook.MOST_A_SECOND)  # of one who was met just now; phases of no length make more datagrams than a job may send
    while kept or told.now_s < at_s + beat_s:
        until = told.now_s + beat_s
        now = [one for one in kept if one.at_s <= until]
        kept = kept[len(now) :]
        told.look(*now[-min(heard, int(hook.MOST_A_SECOND * beat_s)) :])
        heard = 8

    # Never more than all the time, and what silence was believed at most besides. The last one said all of it.
    assert told.wait_s <= told.covered_s + 1e-6
    if max(worked for _, worked in phases) < beat_s and at_s < MOST_LATE_S:
        assert told.wait_s >= min(wait_s, told.covered_s) - hook.OUTSIDE_FOR_S


# --- joined to trees ---


class Trees:
    def __init__(self, *trees: TreeReading) -> None:
        self.trees: Optional[Tuple[TreeReading, ...]] = trees

    def look(self, gpus: Any) -> Optional[Tuple[TreeReading, ...]]:
        return self.trees


TREE = TreeReading("pid-10", ("GPU-0",), blocked=False, on_data_path=False, read_bytes=0, cpu_s=0.0, members=(10, 11))


class Rig:
    def __init__(self, door: Socket, log: Lines, *trees: TreeReading) -> None:
        self.now_s = 1000.0
        self.inner = Trees(*trees)
        self.loaders = HookedLoaders(self.inner, door, log, lambda pid: True, lambda: self.now_s)

    def hear(self, *datagrams: Datagram) -> Tuple[TreeReading, ...]:
        for one in datagrams:
            self.loaders._waits.take(one, self.now_s)
        self.now_s += 5.0
        return self.loaders.look([GpuReading("GPU-0", pids=(10,), processes=1)]) or ()


def test_wait_of_a_worker_and_of_the_holder_go_to_their_tree_and_the_holders_speaks(door: Socket, log: Lines) -> None:
    rig = Rig(door, log, TREE)
    rig.hear(said(1000.0, 0.0), said(1000.0, 0.0, pid=11))
    (tree,) = rig.hear(said(1004.0, 1.0, 8), said(1004.0, 4.0, 8, pid=11))
    loader = TreeSpan().add(tree, True).close("pid-10", 60.0)

    assert [one.pid for one in tree.exact] == [10, 11]
    assert (loader.exact_wait_ratio, loader.batches, loader.off_gpu) == (0.25, 8, None)


def test_process_that_holds_no_gpu_is_a_tree_of_its_own_of_which_nothing_else_is_known(door: Socket, log: Lines) -> None:
    rig = Rig(door, log, TREE)
    rig.hear(said(1000.0, 0.0, inside=True, pid=99))
    trees = rig.hear()
    loader = TreeSpan().add(trees[1], None).close(trees[1].id, 60.0)

    assert trees[0] == TREE
    assert (loader.id, loader.exact_wait_ratio, loader.off_gpu, loader.wait_ratio, loader.cpu_cores) == ("pid-99", 1.0, True, None, None)


def test_trees_that_could_not_be_looked_at_stay_so(door: Socket, log: Lines) -> None:
    rig = Rig(door, log)
    rig.inner.trees = None
    rig.hear(said(1000.0, 0.0, inside=True))

    assert rig.loaders.look([]) is None


def test_tree_nobody_spoke_of_is_as_it_was(door: Socket, log: Lines) -> None:
    assert Rig(door, log, TREE).hear() == (TREE,)
    assert TreeSpan().add(TREE, True).close("pid-10", 60.0).exact_wait_ratio is None


def test_tree_whose_gpus_work_keeps_what_its_job_told(door: Socket, log: Lines) -> None:
    skipped = TreeReading("pid-10", ("GPU-0",), skipped=True, members=(10,), exact=(Exact(10, 5.0, 2.0, 1, True),))
    loader = TreeSpan().add(skipped, False).close("pid-10", 60.0)

    assert (loader.wait_ratio, loader.exact_wait_ratio, loader.exact_s) == (0.0, 0.4, 5.0)


def test_many_talkers_without_gpus_do_not_fill_the_report(door: Socket, log: Lines) -> None:
    rig = Rig(door, log, TREE)
    rig.hear(*(said(1000.0, 0.0, pid=pid, inside=True) for pid in range(100, 190)))

    assert len(rig.hear()) == 1 + MOST_OFF_GPU


ALONE = TreeReading("pid-10", (), exact=(Exact(10, 5.0, 5.0, 1),))


def window(*beats: Tuple[TreeReading, ...], ratio: float = 0.0) -> Dict[str, Loader]:
    """What a report says of the trees of these beats."""
    filled = OpenWindow(0.0)
    gpus = (GpuReading("GPU-0", samples=(Sample(0.0, ratio),), processes=1),)
    for trees in beats:
        filled.add(Reading(GpuSnapshot(gpus=gpus), trees), 5.0)
    return {tree.id: tree for tree in filled.loaders(5.0 * len(beats)) or ()}


@pytest.mark.parametrize("before", [True, False], ids=["unlisted at the first beat", "unlisted at the last beat"])
def test_beat_at_which_a_holder_was_not_listed_leaves_its_tree_what_it_is(before: bool) -> None:
    """What it told meanwhile counts, and it is no process without a GPU for that."""
    waiting = replace(TREE, on_data_path=True, read_bytes=10, cpu_s=5.0)
    seen = [(waiting,), (waiting,), (waiting,)]
    (loader,) = window(*([(ALONE,), *seen] if before else [*seen, (ALONE,)])).values()

    assert loader.off_gpu is None
    assert (loader.wait_ratio, loader.read_bytes, loader.cpu_cores, loader.exact_wait_ratio) == (1.0, 30, 0.75, 1.0)


def test_talkers_without_gpus_that_change_from_beat_to_beat_crowd_out_no_tree_with_a_gpu() -> None:
    owners = tuple(replace(TREE, id="pid-%d" % pid) for pid in range(1, 60))
    beats = [(*owners, *(replace(ALONE, id="pid-%d" % pid) for pid in range(1000 + 16 * n, 1016 + 16 * n))) for n in range(4)]
    told = window(*beats)

    assert len(told) == MOST_TREES
    assert sum(tree.off_gpu is True for tree in told.values()) == MOST_OFF_GPU


def test_most_waiting_and_most_working_stay_where_there_are_too_many() -> None:
    """By what they told of themselves as well, with a GPU or without; and those of which it is not known."""
    idle = [replace(TREE, id="pid-%d" % pid) for pid in range(200, 200 + 2 * MOST_TREES)]
    little = [TreeReading("pid-%d" % pid, (), exact=(Exact(pid, 5.0, 0.5),)) for pid in range(100, 140)]
    told = window((
        *idle, *little,
        replace(TREE, id="pid-900", exact=(Exact(900, 5.0, 4.0),)), replace(ALONE, id="pid-901"), replace(TREE, id="pid-902", cpu_s=20.0),
        replace(TREE, id="pid-903", on_data_path=None),
    ))  # fmt: skip

    assert list(told)[:4] == ["pid-903", "pid-902", "pid-901", "pid-900"]
    assert len(told) == MOST_TREES


def test_what_is_dropped_is_said_once_in_the_log(door: Socket, log: Lines) -> None:
    rig = Rig(door, log, TREE)
    for _ in range(3):
        send(door, b"rubbish")
        rig.hear()

    assert rig.loaders.dropped == {"too short": 3}
    assert log.events() == ["hook datagrams dropped"]


# --- whole ---

JOB = """
import sys, time
from agent.loader_hook import timed_loader
def batches():
    while True:
        time.sleep(0.15)
        yield 1
for _ in timed_loader(batches()):
    time.sleep(0.05)
"""


def test_real_job_beside_the_agents_own_look(door: Socket, log: Lines) -> None:
    env = {**os.environ, "REAPER_AGENT_HOOK_SOCKET": str(door._path), "PYTHONPATH": str(ROOT)}
    source = HookedLoaders(ProcLoaders(), door, log)
    span = TreeSpan()
    with subprocess.Popen([sys.executable, "-c", JOB], env=env) as job:
        gpu = GpuReading("GPU-0", pids=(job.pid,), processes=1, samples=(Sample(0.0, 0.0),))
        until = time.monotonic() + 20.0
        while time.monotonic() < until and (not span.exact or span.exact[job.pid].batches < 8):
            time.sleep(0.1)
            (tree,) = source.look([gpu]) or ()
            span = span.add(tree, True)
        job.kill()
    loader = replace(span.close("pid", 10.0), id="job")

    assert 0.6 <= (loader.exact_wait_ratio or 0.0) <= 0.85
    assert loader.wait_ratio is not None
    assert source.dropped == {}
