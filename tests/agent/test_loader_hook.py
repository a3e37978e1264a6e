"""The file that a job imports: the loader stays what it was, and what it waited is told, never at the job's expense."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple

import pytest

from agent import loader_hook
from agent.loader_hook import DATAGRAM, MAGIC, VARIABLE, timed_loader

FILE = Path(loader_hook.__file__)


class Ear:
    """The agent's end of the socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def heard(self) -> List[Tuple[bool, int, float, float, int]]:
        """(inside, run, at_s, wait_s, batches) of each."""
        found = []
        while True:
            try:
                magic, flags, *rest = DATAGRAM.unpack(self._socket.recv(4096))
            except BlockingIOError:
                return found
            assert magic == MAGIC
            found.append((bool(flags), *rest))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def ear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ear]:
    made = Ear(tmp_path / "hook.sock")
    monkeypatch.setenv(VARIABLE, str(made.path))
    loader_hook._meter.begin()
    yield made
    made.close()
    loader_hook._meter.begin()


class Loader:
    """A loader as frameworks make them."""

    def __init__(self, batches: int = 3, pause_s: float = 0.0) -> None:
        self.batches, self.pause_s, self.batch_size = batches, pause_s, 32

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[int]:
        for n in range(self.batches):
            time.sleep(self.pause_s)
            yield n


class Endless:
    """Without a length; its own iterator, and more than one iteration after a reset."""

    def __init__(self) -> None:
        self.n = 0

    def __iter__(self) -> "Endless":
        return self

    def __next__(self) -> int:
        self.n += 1
        if self.n > 3:
            raise StopIteration
        return self.n

    def reset(self) -> None:
        self.n = 0


class Indexed:
    """The oldest way to be iterated over."""

    def __getitem__(self, n: int) -> int:
        if n >= 3:
            raise IndexError(n)
        return n


# --- the loader stays what it is ---


def test_loader_keeps_length_attributes_type_and_iterates_anew_each_time(ear: Ear) -> None:
    loader = Loader()
    timed = timed_loader(loader)
    timed.batch_size = 64

    assert [list(timed), list(timed)] == [[0, 1, 2], [0, 1, 2]]
    assert (len(timed), timed.batches, loader.batch_size, isinstance(timed, Loader), bool(timed)) == (3, 3, 64, True, True)
    assert not timed_loader(Loader(0))  # as long as the loader it wraps
    with pytest.raises(AttributeError, match="no_such"):
        timed.no_such  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("make", [Loader, Endless, Indexed, lambda: [0, 1, 2], lambda: {"a": 1}, lambda: range(3), lambda: iter([1, 2])])
def test_anything_that_can_be_iterated_gives_the_same_items(ear: Ear, make: Any) -> None:
    assert list(timed_loader(make())) == list(make())


def test_loader_without_a_length_does_not_seem_to_have_one(ear: Ear) -> None:
    timed = timed_loader(Endless())

    assert not hasattr(timed, "__len__")
    assert bool(timed) is True
    with pytest.raises(TypeError):
        len(timed)  # type: ignore[arg-type]


def test_iterator_that_is_its_own_is_asked_itself_and_may_be_reset(ear: Ear) -> None:
    timed = timed_loader(Endless())

    assert iter(timed) is timed
    assert next(timed) == 1
    assert list(timed) == [2, 3]
    timed.reset()
    assert list(timed) == [1, 2, 3]


def test_generator_is_closed_and_sent_to_as_before(ear: Ear) -> None:
    closed = []

    def batches() -> Iterator[Any]:
        try:
            got = yield 1
            yield got
        finally:
            closed.append(True)

    timed = timed_loader(batches())

    assert isinstance(timed, types.GeneratorType)
    assert next(timed) == 1
    assert timed.send("x") == "x"
    timed.close()
    assert closed == [True]
    assert list(timed) == []


def test_abandoned_generator_ends_with_the_loop_that_left_it(ear: Ear) -> None:
    closed = []

    class Source:
        def __iter__(self) -> Iterator[int]:
            try:
                yield from range(10)
            finally:
                closed.append(True)

    for n in timed_loader(Source()):
        if n == 2:
            break

    assert closed == [True]


def test_exception_of_the_loader_comes_through_as_it_is_and_measuring_goes_on(ear: Ear) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk gone")

    timed = timed_loader(broken())
    next(timed)
    with pytest.raises(OSError, match="disk gone"):
        next(timed)

    assert loader_hook._meter.inside is False


def test_end_comes_again_and_again(ear: Ear) -> None:
    it = iter(timed_loader([1]))

    assert [next(it), next(it, None), next(it, None)] == [1, None, None]


@pytest.mark.parametrize("thing", [None, 7, object()])
def test_what_cannot_be_iterated_comes_back_as_it_is(thing: object) -> None:
    assert timed_loader(thing) is thing


def test_loader_that_raises_when_it_is_looked_at_is_used_unmeasured() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if name in ("__iter__", "__getitem__"):
                raise RuntimeError("do not look")
            return super().__getattribute__(name)

    class Shy(metaclass=Meta):
        def __iter__(self) -> Iterator[int]:
            return iter([1])

    shy = Shy()

    assert timed_loader(shy) is shy


def test_timed_loader_goes_to_a_spawned_worker_and_can_be_copied(ear: Ear) -> None:
    timed = timed_loader(Loader())
    again = pickle.loads(pickle.dumps(timed))

    assert type(again) is type(timed)
    assert list(again) == list(copy.copy(timed)) == list(copy.deepcopy(timed)) == [0, 1, 2]


# --- what it waited ---


def test_wait_is_told_and_work_is_not(ear: Ear) -> None:
    for _ in timed_loader(Loader(3, pause_s=0.4)):
        time.sleep(0.05)
    told = ear.heard()

    inside, _, at_s, wait_s, batches = told[-1]
    assert told[0][:1] + told[0][3:] == (True, 0.0, 0)  # the first wait is told of when it begins
    assert abs(at_s - time.monotonic()) < 30
    assert (batches, 0.4 * batches - 0.01 <= wait_s < 1.3) == (round(wait_s / 0.4), True)


def test_at_most_one_datagram_a_second(ear: Ear) -> None:
    for _ in timed_loader(Loader(130, pause_s=0.01)):
        pass
    told = [at_s for _, _, at_s, _, _ in ear.heard()]

    assert 2 <= len(told) <= 3
    assert all(after - before >= 1.0 for before, after in zip(told[:-1], told[1:]))  # noqa: B905  Python 3.9


def test_nested_wrapping_counts_once(ear: Ear) -> None:
    inner = timed_loader(Loader(2, pause_s=0.2))
    assert timed_loader(inner) is inner

    def prefetched() -> Iterator[int]:
        yield from inner

    began = time.monotonic()
    list(timed_loader(prefetched()))
    took_s = time.monotonic() - began

    assert 0.4 <= loader_hook._meter.wait_s <= took_s


def test_what_is_likely_to_be_longer_is_told_of_before_it_begins(ear: Ear) -> None:
    """Else the agent would believe a job that computes for a minute to be in its loader all the while, or the other way round."""

    def regime(pause_s: float, work_s: float, batches: int) -> Optional[bool]:
        loader_hook._meter.begin()
        for _ in timed_loader(Loader(batches, pause_s)):
            time.sleep(work_s)
        return [inside for inside, *_ in ear.heard()][1:2][0]

    assert regime(pause_s=0.01, work_s=0.2, batches=7) is False
    assert regime(pause_s=0.2, work_s=0.01, batches=7) is True


# --- never at the job's expense ---


def full(path: Path) -> Any:
    ear = Ear(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out, contextlib.suppress(BlockingIOError):
        while True:
            out.sendto(b"x", str(path))
    return ear


def dead(path: Path) -> Any:
    Ear(path).close()


def folder(path: Path) -> Any:
    path.mkdir()


def file(path: Path) -> Any:
    path.write_text("no socket")


@pytest.mark.parametrize("make", [full, dead, folder, file, lambda path: None], ids=["full", "dead", "folder", "file", "nobody"])
def test_whatever_the_socket_is_the_job_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    path = tmp_path / "hook.sock"
    kept = make(path)
    monkeypatch.setenv(VARIABLE, str(path))
    loader_hook._meter.begin()

    assert list(timed_loader(Loader())) == [0, 1, 2]
    assert loader_hook._meter.due > 0.0  # it was tried, and is not tried again at once
    if kept is not None:
        kept.close()
    loader_hook._meter.begin()


@pytest.mark.parametrize("path", ["off", "relative.sock", "/x" * 200, "\udcff", "/proc/1/x"])
def test_whatever_the_variable_says_the_job_goes_on(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv(VARIABLE, path)
    loader_hook._meter.begin()

    assert list(timed_loader(Loader())) == [0, 1, 2]
    loader_hook._meter.begin()


def test_no_descriptor_left_is_the_jobs_business_alone(ear: Ear) -> None:
    code = (
        "import resource, sys\nfrom agent.loader_hook import timed_loader\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))\nsys.stdout.write(str(sum(timed_loader(range(4)))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=FILE.parents[1])

    assert (done.returncode, done.stdout, done.stderr, ear.heard()) == (0, "6", "", [])


def test_agent_that_comes_back_hears_all_that_was_missed(ear: Ear, tmp_path: Path) -> None:
    timed = iter(timed_loader(Loader(40, pause_s=0.05)))
    next(timed)
    ear.close()
    ear.path.unlink()
    for _ in range(10):
        next(timed)
    back = Ear(ear.path)
    for _ in timed:
        pass
    told = back.heard()
    back.close()

    assert told[-1][3] >= 0.05 * 20  # of the whole run, not of what it heard


def test_nothing_is_open_between_datagrams_so_a_fork_inherits_nothing(ear: Ear) -> None:
    before = set(os.listdir("/proc/self/fd"))
    it = iter(timed_loader(Loader()))
    next(it)

    assert set(os.listdir("/proc/self/fd")) == before
    assert len(ear.heard()) == 1


def test_forked_worker_counts_for_itself_from_zero(ear: Ear) -> None:
    loader = timed_loader(Loader(2, pause_s=0.2))
    list(loader)
    parent = loader_hook._meter.run
    child = os.fork()
    if child == 0:
        try:
            fine = loader_hook._meter.run != parent and loader_hook._meter.wait_s == 0.0 and list(loader) == [0, 1]
            os._exit(0 if fine and loader_hook._meter.batches == 2 else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    runs = [run for _, run, *_ in ear.heard()]

    assert status == 0
    assert runs[0] == parent
    assert len(set(runs)) == 2


def test_worker_forked_in_the_middle_of_a_wait_is_not_in_it(ear: Ear) -> None:
    class Forking:
        def __iter__(self) -> Iterator[int]:
            child = os.fork()
            if child == 0:
                os._exit(1 if loader_hook._meter.inside else 0)
            yield os.waitpid(child, 0)[1]

    assert list(timed_loader(Forking())) == [0]


def test_spawned_worker_tells_of_itself(ear: Ear) -> None:
    code = "from agent.loader_hook import timed_loader\nprint(sum(timed_loader(range(4))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FILE.parents[1])

    assert (done.stdout, len(ear.heard())) == ("6\n", 1)


def test_copied_file_runs_alone_and_on_old_pythons(ear: Ear, tmp_path: Path) -> None:
    shutil.copy(FILE, tmp_path / "loader_hook.py")
    code = "from loader_hook import timed_loader\nprint(len(timed_loader([1, 2])), sum(timed_loader(x for x in (1, 2))))"
    pythons = [sys.executable, *map(str, Path.home().glob(".pyenv/versions/3.[89].*/bin/python"))]
    for python in pythons:
        done = subprocess.run([python, "-S", "-W", "error", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "2 3\n", ""), python

    assert len(ear.heard()) == len(pythons)
