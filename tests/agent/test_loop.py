"""The loop: beats, windows, heartbeats while the driver hangs, and what is remembered."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple

import pytest

from agent.identity import Identity
from agent.loop import Loop, run_loop
from agent.readings import GpuReading, GpuSnapshot, HostReading, TreeReading
from agent.report import Report, decode, encode
from agent.sampler import Sampler
from agent.state import Memory, load_memory, read_status, save_memory
from tests.agent.doubles import (
    BOOT,
    OTHER,
    RESOURCE,
    KeptReports,
    Lines,
    ManualClock,
    PatientClock,
    ScriptedGpus,
    ScriptedHost,
    gpu,
)
from tests.agent.doubles import settings as make_settings

Script = Callable[[], GpuSnapshot]


class Rig:
    """A loop with everything scripted, taken beat by beat. The sampler's thread is real."""

    def __init__(self, tmp_path: Path, script: Callable[["Rig"], GpuSnapshot], **more: Any) -> None:
        self.clock, self.log, self.out = PatientClock(), Lines(), KeptReports()
        self.settings = make_settings(tmp_path, **{k: more.pop(k) for k in ("window_s", "beat_s") if k in more})
        self.identity: Optional[Identity] = more.pop("identity", Identity(RESOURCE))
        self.beats = 0
        self.gpus = ScriptedGpus(lambda: script(self))
        loaders, hosts, memory = more.pop("loaders", None), more.pop("hosts", ScriptedHost()), more.pop("memory", Memory())
        self.sampler = Sampler(self.gpus, loaders, more.pop("sampler_clock", self.clock), self.log, self.settings.beat_s)
        self.loop = Loop(self.settings, self.sampler, hosts, self.out, lambda: self.identity, BOOT, self.clock, self.log, memory)

    def run(self, seconds: float) -> List[Report]:
        """Beat until so much time has passed, the last moment included."""
        end = self.clock.boot_s() + seconds
        while self.clock.boot_s() <= end + 1e-9:
            self.beats += 1
            self.loop.beat()
            self.clock.move(max(0.001, self.loop.next_beat_in(self.clock.boot_s())))
        return self.out.reports


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    rigs: List[Rig] = []

    def make(script: Callable[[Rig], GpuSnapshot], **more: Any) -> Rig:
        rigs.append(Rig(tmp_path, script, **more))
        return rigs[-1]

    yield make
    for made in rigs:
        made.sampler.close()


def steady(*ratios: float, **more: Any) -> Callable[[Rig], GpuSnapshot]:
    return lambda rig: GpuSnapshot(gpus=tuple(gpu(i, rig.clock, r, **more) for i, r in enumerate(ratios)), count=len(ratios), driver="580")


def test_one_report_per_window_with_everything_in_its_place(rig: Any) -> None:
    hosts = ScriptedHost(HostReading(10.0, 100.0, 4, 0.5, 1000, 0, ()), HostReading(40.0, 160.0, 4, 0.5, 61000, 600, ("slurmd",)))
    made = rig(steady(0.5, 0.0, mem_used_bytes=3, mem_total_bytes=9, power_w=60.0, energy_j=7.0, processes=0), hosts=hosts)
    (report,) = made.run(60.0)

    assert (report.resource, report.boot_id, report.up_s, report.seq, report.window_s) == (RESOURCE, BOOT, 1060.0, 1060000, 60.0)
    assert (report.sampler.state, report.sampler.beat_s, report.expected_gpus) == ("ok", 5.0, 2)
    assert (report.sampler.version or "").endswith("/580")
    assert [(g.peak_ratio, g.mean_ratio, g.samples, g.covered_s) for g in report.gpus] == [(0.5, 0.5, 13, 60.0), (0.0, 0.0, 13, 60.0)]
    assert [(g.mem_used_bytes, g.power_w, g.processes) for g in report.gpus] == [(3, 60.0, 0)] * 2
    assert report.totals is not None
    assert (report.totals.gpu_energy_j, report.totals.cpu_s, report.totals.disk_bytes) == (14.0, 40.0, 61000)
    assert report.host is not None
    assert (report.host.cpu_ratio, report.host.disk_bytes_per_s, report.host.net_bytes_per_s) == (0.5, 1000.0, 10.0)
    assert report.host.orchestrators == ("slurmd",)
    assert (report.jobs, report.hooks, report.keep) == (None, None, None)
    assert decode(encode(report)) == report


def test_windows_follow_each_other_and_cover_all_time(rig: Any) -> None:
    reports = rig(steady(0.1)).run(180.0)

    assert [r.seq for r in reports] == [1060000, 1120000, 1180000]
    assert [r.gpus[0].covered_s for r in reports] == [60.0] * 3
    assert [r.window_s for r in reports] == [60.0] * 3


def test_beat_that_does_not_divide_the_window_still_ends_it_on_time(rig: Any) -> None:
    reports = rig(steady(0.1), beat_s=7.0).run(120.0)

    assert [(r.window_s, r.gpus[0].covered_s) for r in reports] == [(60.0, 60.0)] * 2


def test_source_that_needs_a_shorter_beat_gets_it(rig: Any) -> None:
    made = rig(lambda rig: GpuSnapshot(gpus=(gpu(0, rig.clock, 0.1),), count=1, beat_s=1.0))
    (report,) = made.run(60.0)

    assert made.beats == 61
    assert (report.sampler.beat_s, report.gpus[0].covered_s) == (1.0, 60.0)


def test_gpu_that_fails_for_half_a_window_covers_half(rig: Any) -> None:
    def script(rig: Rig) -> GpuSnapshot:
        good = rig.clock.boot_s() < 1030.0
        return GpuSnapshot(gpus=(gpu(0, rig.clock, 0.0) if good else GpuReading("GPU-0", trouble="lost"),), count=1)

    first, second = rig(script).run(120.0)

    assert (first.gpus[0].samples, first.gpus[0].covered_s, first.gpus[0].trouble) == (6, 25.0, "lost")
    assert (second.gpus[0].peak_ratio, second.gpus[0].samples, second.gpus[0].covered_s) == (None, None, None)


def test_driver_that_hangs_is_reported_by_name_and_heartbeats_go_on(rig: Any) -> None:
    release, hangs = threading.Event(), threading.Event()

    def script(rig: Rig) -> GpuSnapshot:
        if rig.clock.boot_s() >= 1060.0:
            rig.gpus.doing = "nvmlDeviceGetUtilizationRates of GPU 3"
            hangs.set()
            release.wait(20.0)
        return steady(0.9, 0.0)(rig)

    class NoPatience(PatientClock):
        """Waits for the sampler while it answers, and not at all once it hangs. Time is the rig's."""

        rig: Optional[Rig] = None

        def wait(self, event: threading.Event, for_s: float) -> bool:
            if self.boot_s() < 1060.0:
                return event.wait(5.0)
            hangs.wait(5.0)  # a thread that is not there yet is another story than one that hangs
            return event.wait(0.0)

        def boot_s(self) -> float:
            return self.rig.clock.boot_s() if self.rig is not None else 1000.0

    patience = NoPatience()
    made = rig(script, sampler_clock=patience)
    patience.rig = made
    made.run(300.0)
    release.set()
    reports = made.out.reports

    assert [r.seq for r in reports] == [1060000, 1120000, 1180000, 1240000, 1300000]
    assert reports[0].sampler.state == "ok"
    assert [r.sampler.state for r in reports[1:]] == ["stuck"] * 4
    assert (reports[2].sampler.because or "").startswith("nvmlDeviceGetUtilizationRates of GPU 3 has not returned for 120 s")
    for report in reports[1:]:
        assert [(g.uuid, g.peak_ratio, g.covered_s, g.mem_used_bytes) for g in report.gpus] == [("GPU-0", None, None, None), ("GPU-1", None, None, None)]
        assert (report.expected_gpus, report.host is not None) == (2, True)
    assert len([t for t in threading.enumerate() if t is made.sampler._thread]) == 1


def test_reading_that_raises_is_a_failed_sampler_not_a_dead_agent(rig: Any) -> None:
    def script(rig: Rig) -> GpuSnapshot:
        raise ZeroDivisionError("a surprise")

    (report,) = rig(script).run(60.0)

    assert (report.sampler.state, report.gpus) == ("failed", ())
    assert "a surprise" in (report.sampler.because or "")


def test_loader_that_raises_costs_only_the_loader(rig: Any) -> None:
    class Broken:
        def look(self, gpus: Any) -> Any:
            raise ZeroDivisionError

    (report,) = rig(steady(0.5), loaders=Broken()).run(60.0)

    assert (report.loader, report.gpus[0].peak_ratio) == (None, 0.5)


def test_loader_of_the_window(rig: Any) -> None:
    class Waiting:
        def look(self, gpus: Any) -> Tuple[TreeReading, ...]:
            return (TreeReading("pid-7", ("GPU-0",), True, True, 100, 2.5),)

    (report,) = rig(steady(0.0), loaders=Waiting()).run(60.0)

    assert report.loader is not None
    (tree,) = report.loader
    assert (tree.id, tree.wait_ratio, tree.blocked_ratio, tree.read_bytes) == ("pid-7", 1.0, 1.0, 1300)
    assert tree.cpu_cores == round(2.5 * 13 / 60, 4)


def test_no_holder_is_an_empty_list_and_no_look_is_none(rig: Any) -> None:
    class Nobody:
        def look(self, gpus: Any) -> Tuple[TreeReading, ...]:
            return ()

    assert rig(steady(0.0), loaders=Nobody()).run(60.0)[0].loader == ()
    assert rig(steady(0.0)).run(60.0)[0].loader is None


def test_count_that_drops_is_held_against_what_was_there(rig: Any) -> None:
    def script(rig: Rig) -> GpuSnapshot:
        return steady(0.0, 0.0, 0.0)(rig) if rig.clock.boot_s() < 1060.0 else steady(0.0, 0.0)(rig)

    reports = rig(script).run(180.0)

    assert [r.expected_gpus for r in reports] == [3, 3, 3]
    assert [g.peak_ratio for g in reports[2].gpus] == [0.0, 0.0, None]


def test_count_is_remembered_over_a_restart(rig: Any, tmp_path: Path, log: Lines) -> None:
    rig(steady(0.0, 0.0)).run(60.0)
    again = rig(steady(0.0), memory=load_memory(tmp_path / "state", log))
    (report,) = again.run(60.0)

    assert (report.expected_gpus, len(report.gpus)) == (2, 1)


def test_resize_forgets_the_count(rig: Any) -> None:
    made = rig(steady(0.0), memory=Memory(RESOURCE, "p5.48xlarge", "earlier boot", 8), identity=Identity(RESOURCE, "p5.4xlarge", "metadata"))
    (report,) = made.run(60.0)

    assert report.expected_gpus == 1
    assert made.out.forgotten == []


def test_cloned_disk_forgets_count_and_spool(rig: Any, tmp_path: Path, log: Lines) -> None:
    made = rig(steady(0.0), memory=Memory(OTHER, "p5.48xlarge", "earlier boot", 8), identity=Identity(RESOURCE, "p5.48xlarge", "metadata"))
    (report,) = made.run(60.0)

    assert (report.resource, report.expected_gpus) == (RESOURCE, 1)
    assert made.out.forgotten == ["another machine's"]
    assert load_memory(tmp_path / "state", log) == Memory(RESOURCE, "p5.48xlarge", BOOT, 1)


def test_vanished_gpus_are_not_a_machine_without_gpus(rig: Any) -> None:
    made = rig(lambda rig: GpuSnapshot("no-gpu", "no GPU on the PCI bus", count=0), memory=Memory(RESOURCE, None, None, 8))
    (report,) = made.run(60.0)

    assert (report.sampler.state, report.expected_gpus) == ("failed", 8)
    assert report.sampler.because == "this machine had 8 GPUs and shows none"


def test_machine_without_gpus_says_so(rig: Any) -> None:
    (report,) = rig(lambda rig: GpuSnapshot("no-gpu", "no GPU on the PCI bus", count=0)).run(60.0)

    assert (report.sampler.state, report.gpus, report.expected_gpus, report.loader) == ("no-gpu", (), 0, None)


@pytest.mark.parametrize("state", ["no-driver", "no-library", "mismatch", "no-permission", "failed"])
def test_blind_sampler_reports_no_figures(rig: Any, state: str) -> None:
    (report,) = rig(lambda rig: GpuSnapshot(state, "because", count=8)).run(60.0)

    assert (report.sampler.state, report.sampler.because, report.gpus, report.expected_gpus) == (state, "because", (), 8)


def test_without_an_identity_nothing_is_sent(rig: Any, tmp_path: Path) -> None:
    made = rig(steady(0.0), identity=None)
    made.run(120.0)

    assert made.out.reports == []
    assert made.log.events().count("window lost") == 2
    assert read_status(tmp_path / "state")["resource"] is None
    assert not (tmp_path / "state" / "memory.json").exists()


def test_identity_that_comes_late_starts_the_reports(rig: Any) -> None:
    made = rig(steady(0.0), identity=None)
    made.run(60.0)
    made.identity = Identity(RESOURCE, None, "metadata")
    made.run(60.0)

    assert [r.resource for r in made.out.reports] == [RESOURCE]


def test_sleep_of_the_machine_ends_the_window_where_watching_ended(rig: Any) -> None:
    made = rig(steady(0.0))
    made.run(30.0)
    made.clock.move(8 * 3600.0)
    made.run(60.0)
    before, after = made.out.reports

    assert (before.window_s, before.seq) == (30.0, 1030000)
    assert after.window_s == 60.0
    assert after.up_s > 8 * 3600
    assert after.gpus[0].covered_s == 60.0  # nothing of the hole
    assert "beats were missed" in made.log.events()


def test_status_file_tells_what_was_seen(rig: Any, tmp_path: Path) -> None:
    made = rig(steady(0.25))
    made.run(60.0)
    seen = read_status(tmp_path / "state")

    assert (seen["resource"], seen["boot_id"], seen["window_s"]) == (RESOURCE, BOOT, 60.0)
    assert seen["report"]["gpus"][0]["peak_ratio"] == 0.25
    assert seen["spool"] == {"reports": 0, "bytes": 0, "dropped": 0}
    assert "token-of-this-host" not in json.dumps(seen)


def test_text_of_a_driver_cannot_break_the_report(rig: Any) -> None:
    script = lambda rig: GpuSnapshot("failed", "x\n\x00y" * 200, gpus=(replace(gpu(0, rig.clock, 0.5), model="\x07" + "m" * 999),), count=1)  # noqa: E731
    (report,) = rig(script).run(60.0)

    assert decode(encode(report)) == report


def test_run_loop_runs_many_in_one_process(tmp_path: Path) -> None:
    """As the demo does: short windows, no signals, no driver, each with its own folders."""
    stop, outs = threading.Event(), [KeptReports() for _ in range(4)]
    sources = [ScriptedGpus(lambda: GpuSnapshot(gpus=(GpuReading("GPU-0"),), count=1)) for _ in outs]
    told: List[str] = []
    threads = [
        threading.Thread(
            target=run_loop,
            args=(make_settings(tmp_path / str(i), window_s=0.2, beat_s=0.05), sources[i], ScriptedHost(), stop),
            kwargs={"outbox": out, "boot_id": BOOT, "log": Lines(), "notify": told.append},
        )
        for i, out in enumerate(outs)
    ]
    for thread in threads:
        thread.start()
    for out in outs:
        out.wait_for(2)
    stop.set()
    for thread in threads:
        thread.join(10.0)

    assert [source.closed for source in sources] == [1] * 4
    assert [out.closed for out in outs] == [1] * 4
    assert {"READY=1", "WATCHDOG=1", "STOPPING=1"} == set(told)


def test_end_hands_over_the_window_begun(tmp_path: Path) -> None:
    stop, out = threading.Event(), KeptReports()
    clock = ManualClock()

    def script() -> GpuSnapshot:
        if clock.boot_s() >= 1020.0:
            stop.set()
        return GpuSnapshot(gpus=(gpu(0, clock, 0.5),), count=1)

    class Clock(ManualClock):
        def boot_s(self) -> float:
            return clock.boot_s()

        def wait(self, event: threading.Event, for_s: float) -> bool:
            if event is stop:
                return clock.wait(event, for_s)
            return event.wait(5.0)

    run_loop(make_settings(tmp_path), ScriptedGpus(script), ScriptedHost(), stop, outbox=out, boot_id=BOOT, clock=Clock(), log=Lines())

    assert [(r.window_s, r.gpus[0].peak_ratio) for r in out.reports] == [(20.0, 0.5)]


def test_tidying_follows_each_window(tmp_path: Path) -> None:
    stop, told = threading.Event(), []  # type: Tuple[threading.Event, List[int]]

    class Clock(ManualClock):
        def wait(self, event: threading.Event, for_s: float) -> bool:
            return super().wait(event, for_s) if event is stop else event.wait(5.0)

    run_loop(
        make_settings(tmp_path), ScriptedGpus(lambda: GpuSnapshot(count=0)), ScriptedHost(), stop, outbox=KeptReports(), boot_id=BOOT, clock=Clock(),
        log=Lines(), windows=3, tidy=told.append,
    )  # fmt: skip

    assert told == [1, 2, 3]


def test_memory_is_not_written_when_nothing_changed(rig: Any, tmp_path: Path, log: Lines) -> None:
    memory = Memory(RESOURCE, None, None, 1)
    save_memory(tmp_path / "state", memory, log)
    stamp = (tmp_path / "state" / "memory.json").stat().st_mtime_ns
    rig(steady(0.0), memory=memory).run(120.0)

    assert (tmp_path / "state" / "memory.json").stat().st_mtime_ns == stamp
