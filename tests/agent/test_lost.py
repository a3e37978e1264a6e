"""Work that was on the GPUs when the machine was stopped is told at its next boot, once, and by this machine only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, List, Optional

import pytest

from agent.identity import Identity
from agent.loop import Loop
from agent.lost import FILE, LastWork
from agent.readings import GpuSnapshot
from agent.report import Answer, Gpu, Lost, Report, Sampler, Upcoming, decode, encode
from agent.sampler import Sampler as Reader
from agent.sender import Delivery
from agent.state import Memory
from tests.agent.doubles import BOOT, OTHER, RESOURCE, KeptReports, Lines, PatientClock, ScriptedGpus, ScriptedHost, gpu
from tests.agent.doubles import settings as make_settings

NEXT = "5f0c9c5e-0000-4000-8000-000000000002"
COMING = Answer(1, Upcoming("stop", "2026-03-01T12:00:00Z", "idle for 2h"))


def report(*peaks: Optional[float], seq: int = 60000, **more: Any) -> Report:
    gpus = tuple(Gpu("GPU-%d" % i, peak_ratio=p, samples=1 if p is not None else None, covered_s=60.0 if p is not None else None, **more) for i, p in enumerate(peaks))
    return Report(RESOURCE, BOOT, seq / 1000, seq, 60.0, 0.0, Sampler("ok"), gpus=gpus)


def told(folder: Path, boot: str = NEXT, resource: str = RESOURCE, log: Optional[Lines] = None) -> Optional[Lost]:
    return LastWork(folder, boot, log or Lines()).tell(resource, 1000)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param([report(0.93, 0.0)], Lost(BOOT, "1 of 2 GPUs computed, GPU-0 at 93%", 0.93), id="one GPU computed"),
        pytest.param([report(0.0, 0.2), report(0.0, 1.0)], Lost(BOOT, "1 of 2 GPUs computed, GPU-1 at 100%", 1.0), id="the last window counts"),
        pytest.param([report(0.5), report(None)], Lost(BOOT, "1 of 1 GPUs computed, GPU-0 at 50%", 0.5), id="a window without a sample says nothing"),
        pytest.param([report(0.0, 0.0)], None, id="idle"),
        pytest.param([report(0.0, mem_used_bytes=8 << 30, processes=1)], None, id="held is no work"),
        pytest.param([report(0.9), report(0.0)], None, id="it ended by itself"),
        pytest.param([report(None)], None, id="could not be seen"),
        pytest.param([report()], None, id="no GPU"),
        pytest.param([], None, id="no window"),
    ],
)
def test_work_in_the_last_window_is_told_at_the_next_boot(tmp_path: Path, last: List[Report], expected: Optional[Lost]) -> None:
    work = LastWork(tmp_path, BOOT, Lines())
    for one in last:
        work.see(one, announced=False)
    work.keep()

    assert told(tmp_path) == expected


def test_machine_that_loses_its_power_has_written_it_down_where_a_stop_was_announced(tmp_path: Path) -> None:
    work = LastWork(tmp_path, BOOT, Lines())
    work.see(report(0.9), announced=True)

    assert told(tmp_path) == Lost(BOOT, "1 of 1 GPUs computed, GPU-0 at 90%", 0.9)


def test_nothing_is_written_while_nothing_is_announced(tmp_path: Path) -> None:
    work = LastWork(tmp_path, BOOT, Lines())
    for n in range(100):
        work.see(report(0.9, seq=n), announced=False)

    assert list(tmp_path.iterdir()) == []


def test_idle_machine_writes_nothing_while_its_stop_is_announced(tmp_path: Path) -> None:
    work = LastWork(tmp_path, BOOT, Lines())
    for n in range(100):
        work.see(report(0.0, seq=n), announced=True)

    assert list(tmp_path.iterdir()) == []


def test_note_goes_when_the_work_ends(tmp_path: Path) -> None:
    work = LastWork(tmp_path, BOOT, Lines())
    work.see(report(0.9), announced=True)
    work.see(report(0.0, seq=120000), announced=True)

    assert list(tmp_path.iterdir()) == []


def test_agent_that_is_started_again_in_the_same_boot_has_lost_nothing(tmp_path: Path) -> None:
    work = LastWork(tmp_path, BOOT, Lines())
    work.see(report(0.9), announced=False)
    work.keep()

    assert told(tmp_path, boot=BOOT) is None
    assert told(tmp_path, boot=NEXT) is None


def test_another_machines_note_on_a_copied_disk_is_thrown_away(tmp_path: Path) -> None:
    LastWork(tmp_path, BOOT, Lines()).see(report(0.9), announced=True)

    assert told(tmp_path, resource=OTHER) is None
    assert told(tmp_path) is None


def test_it_is_told_until_a_report_with_it_was_taken_and_then_never_again(tmp_path: Path) -> None:
    LastWork(tmp_path, BOOT, Lines()).see(report(0.9), announced=True)
    work = LastWork(tmp_path, NEXT, Lines())

    first = work.tell(RESOURCE, 60000)
    work.taken(None)
    work.taken(59999)  # of a report from before
    second = work.tell(RESOURCE, 120000)
    work.taken(120000)

    assert first is not None
    assert first == second
    assert work.tell(RESOURCE, 180000) is None
    assert list(tmp_path.iterdir()) == []


def test_it_is_told_again_when_the_agent_ends_before_it_was_taken(tmp_path: Path) -> None:
    LastWork(tmp_path, BOOT, Lines()).see(report(0.9), announced=True)
    work = LastWork(tmp_path, NEXT, Lines())
    work.tell(RESOURCE, 60000)
    work.see(replace(report(0.0), boot_id=NEXT), announced=False)
    work.keep()

    assert told(tmp_path) is not None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"v":1}', '{"resource":1,"boot_id":"b","because":"c"}', "\x00"])
def test_note_that_cannot_be_read_is_logged_and_told_to_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    log = Lines()

    assert told(tmp_path, log=log) is None
    assert "last work not readable" in log.events()


@pytest.mark.parametrize("peak", ["high", -1, 2.0, True, None])
def test_peak_that_is_none_is_left_out(tmp_path: Path, peak: Any) -> None:
    (tmp_path / FILE).write_text(json.dumps({"resource": RESOURCE, "boot_id": BOOT, "because": "a\nb" * 200, "peak_ratio": peak}))
    lost = told(tmp_path)

    assert lost is not None
    assert lost.peak_ratio is None
    assert decode(encode(replace(report(), lost=lost))).lost == lost


def test_disk_that_fails_is_logged_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = Lines()
    work = LastWork(tmp_path / "file" / "folder", BOOT, log)
    work.see(report(0.9), announced=True)

    assert "last work not written" in log.events()


# --- in the loop ---


class Announced(KeptReports):
    """A reaper that takes every report, and announces a stop when told to."""

    answer: Optional[Answer] = None

    def delivery(self) -> Delivery:
        return Delivery(last_sent_seq=self.reports[-1].seq if self.reports else None, answer=self.answer)


@pytest.fixture
def boots(tmp_path: Path) -> Any:
    readers: List[Reader] = []

    def boot(boot_id: str, peak: Callable[[float], float], out: KeptReports) -> "tuple[Loop, PatientClock]":
        clock, log = PatientClock(), Lines()
        source = ScriptedGpus(lambda: GpuSnapshot(gpus=(gpu(0, clock, peak(clock.boot_s())),), count=1))
        settings = make_settings(tmp_path)
        readers.append(Reader(source, None, clock, log, settings.beat_s))
        return Loop(settings, readers[-1], ScriptedHost(), out, lambda: Identity(RESOURCE), boot_id, clock, log, Memory()), clock

    yield boot
    for reader in readers:
        reader.close()


def live(loop: Loop, clock: PatientClock, seconds: float) -> None:
    end = clock.boot_s() + seconds
    while clock.boot_s() <= end + 1e-9:
        loop.beat()
        clock.move(max(0.001, loop.next_beat_in(clock.boot_s())))


def test_work_that_began_after_the_last_look_is_told_by_the_window_that_the_shutdown_cut_short(boots: Any) -> None:
    out = Announced()
    loop, clock = boots(BOOT, lambda at: 0.8 if at > 1070.0 else 0.0, out)
    live(loop, clock, 90.0)
    loop.end(hand_over=True)

    again = Announced()
    loop, clock = boots(NEXT, lambda at: 0.0, again)
    live(loop, clock, 180.0)

    assert [one.lost for one in out.reports] == [None, None]
    assert [one.lost for one in again.reports] == [Lost(BOOT, "1 of 1 GPUs computed, GPU-0 at 80%", 0.8), None, None]


def test_work_that_began_after_the_last_beat_is_seen_at_the_end(boots: Any) -> None:
    out = Announced()
    loop, clock = boots(BOOT, lambda at: 0.8 if at > 1091.0 else 0.0, out)
    live(loop, clock, 90.0)
    clock.now_s = 1094.0
    loop.end(hand_over=True)

    again = Announced()
    loop, clock = boots(NEXT, lambda at: 0.0, again)
    live(loop, clock, 60.0)

    assert [one.gpus[0].peak_ratio for one in out.reports] == [0.0, 0.8]
    assert again.reports[0].lost == Lost(BOOT, "1 of 1 GPUs computed, GPU-0 at 80%", 0.8)


def test_machine_that_is_idle_to_its_end_tells_of_no_lost_work(boots: Any) -> None:
    loop, clock = boots(BOOT, lambda at: 0.8 if at < 1030.0 else 0.0, Announced())
    live(loop, clock, 130.0)
    loop.end(hand_over=True)

    again = Announced()
    loop, clock = boots(NEXT, lambda at: 0.0, again)
    live(loop, clock, 60.0)

    assert [one.lost for one in again.reports] == [None]


def test_power_cut_after_an_announced_stop_is_told(boots: Any) -> None:
    out = Announced()
    out.answer = COMING
    loop, clock = boots(BOOT, lambda at: 0.8, out)
    live(loop, clock, 60.0)

    again = Announced()
    loop, clock = boots(NEXT, lambda at: 0.0, again)
    live(loop, clock, 60.0)

    assert again.reports[0].lost is not None


def test_reaper_that_takes_nothing_is_told_in_every_report(boots: Any) -> None:
    loop, clock = boots(BOOT, lambda at: 0.8, Announced())
    live(loop, clock, 60.0)
    loop.end(hand_over=True)

    again = KeptReports()
    loop, clock = boots(NEXT, lambda at: 0.0, again)
    live(loop, clock, 180.0)

    assert [one.lost is not None for one in again.reports] == [True] * 3
