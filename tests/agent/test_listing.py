"""Which processes came, by a made-up /proc and by this machine's own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Set

import pytest

from agent.listing import WHOLE_EVERY, Listing, Pids
from agent.procs import Procs


def looked(listing: Listing, sparing: bool = False) -> Pids:
    seen = listing.look(sparing)
    assert seen is not None
    return seen


# --- where all must be listed: a folder is no kernel's list ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("1", "20", "self-not-a-number", "uptime"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_everybody_came_at_the_first_look_and_later_who_was_not_there(folder: Path) -> None:
    listing = Listing(str(folder))
    first = looked(listing)
    (folder / "30").mkdir()
    (folder / "20").rmdir()
    second = looked(listing)

    assert (sorted(first.known), first.came) == ([1, 20], {1, 20})
    assert (sorted(second.known), second.came) == ([1, 30], {30})
    assert looked(listing).came == set()


@pytest.mark.parametrize(("before", "made", "expected"), [(25, 40, {30}), (35, 35, set()), (50, 25, {1, 20}), (15, 15, {20, 30}), (None, 40, set()), (40, None, set())])
def test_number_that_was_given_since_is_somebody_else(folder: Path, before: Optional[int], made: Optional[int], expected: Set[int]) -> None:
    (folder / "30").mkdir()
    given = iter([before, made])
    listing = Listing(str(folder), lambda: next(given))
    looked(listing)

    assert looked(listing).came == expected


def test_sparing_look_takes_the_last_one_where_all_would_be_listed(folder: Path) -> None:
    listing = Listing(str(folder))
    looked(listing)
    (folder / "30").mkdir()

    spared = looked(listing, sparing=True)

    assert (sorted(spared.known), spared.came) == ([1, 20], set())
    assert looked(listing).came == {30}


def test_everybody_came_again_once_the_last_look_is_forgotten(folder: Path) -> None:
    listing = Listing(str(folder))
    looked(listing)
    listing.forget()

    assert looked(listing, sparing=True).came == {1, 20}


def test_list_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert Listing(str(tmp_path / "gone")).look() is None


# --- this machine's own ---


@pytest.fixture
def start() -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    made: List["subprocess.Popen[bytes]"] = []

    def one() -> "subprocess.Popen[bytes]":
        made.append(subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read(1)"], stdin=subprocess.PIPE))
        return made[-1]

    yield one
    for process in made:
        process.communicate()


class Counted(Listing):
    """Notes from which number on the list was asked."""

    def __init__(self) -> None:
        super().__init__("/proc")
        self.asked: List[int] = []

    def _list(self, first: int) -> Optional[List[int]]:
        self.asked.append(first)
        return super()._list(first)


def test_real_process_that_came_is_found_without_listing_all(start: Callable[[], "subprocess.Popen[bytes]"]) -> None:
    listing = Counted()
    old = start().pid
    looked(listing), looked(listing)
    listing.asked.clear()
    came = start().pid
    seen = looked(listing)

    if listing.asked == [0]:
        pytest.skip("the numbers of this machine's processes began anew just now, or its list cannot be asked from a number on")
    assert came in seen.came
    assert old not in seen.came
    assert {old, came} <= set(seen.known)
    assert set(looked(Listing("/proc")).known) <= set(seen.known) | looked(listing).came


def test_threads_are_no_processes(start: Callable[[], "subprocess.Popen[bytes]"]) -> None:
    listing, stop = Listing("/proc"), threading.Event()
    looked(listing), looked(listing)
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert os.path.exists("/proc/%d/stat" % (thread.native_id or 0))  # the kernel shows it to who asks for it by its number
        assert thread.native_id not in looked(listing).came
    finally:
        stop.set()
        thread.join()


def test_those_that_ended_are_gone_when_all_are_listed_again(start: Callable[[], "subprocess.Popen[bytes]"]) -> None:
    listing, process = Listing("/proc"), start()
    looked(listing)
    process.communicate()
    seen = [process.pid in looked(listing).known for _ in range(WHOLE_EVERY)]

    assert seen[-1] is False


def test_real_process_with_a_number_below_the_newest_is_found_when_all_are_listed(start: Callable[[], "subprocess.Popen[bytes]"]) -> None:
    """As a restored container's: it asked for its number."""
    newest = Procs().listing()._ask_last_made()
    assert newest is not None
    listing = Listing("/proc", lambda: newest + 10_000)  # so that no number that is given now is above it
    looked(listing), looked(listing)
    restored = start().pid
    found = [restored in looked(listing).came for _ in range(WHOLE_EVERY)]

    assert found.count(True) == 1


def test_list_of_somebody_elses_numbers_is_not_asked_from_a_number_on(folder: Path) -> None:
    """A /proc of another pid namespace: who we are in it is not who we are."""
    os.symlink("1" if os.getpid() != 1 else "2", folder / "self")
    (folder / "loadavg").write_text("0.00 0.00 0.00 1/100 30\n")
    listing = Listing(str(folder))
    for _ in range(3):
        looked(listing)
    (folder / "5").mkdir()

    assert looked(listing).came == {5}
