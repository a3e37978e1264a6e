"""The real pynvml over a compiled driver that fails on request."""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any, Optional

import pytest

from agent import nvml as module
from agent.gpu import NvmlGpus
from agent.pci import PciGpus
from tests.agent.doubles import Lines, ManualClock
from tests.agent.driven import EVERY_CALL, Make, peaks
from tests.fakes import nvml


def test_every_figure_of_a_healthy_gpu(make: Make) -> None:
    gpus, _ = make("gpu 0 util 87", "gpu 0 mem 40000 81920", "gpu 0 power 650500", "gpu 0 energy 123456000", "gpu 0 proc %d 39000" % os.getpid())
    snapshot = gpus.read()

    (gpu,) = snapshot.gpus
    assert (snapshot.state, snapshot.count, snapshot.driver, snapshot.beat_s) == ("ok", 1, "580.65.06", None)
    assert (gpu.uuid, gpu.model) == (nvml.uuid(0), "NVIDIA H100 80GB HBM3")
    assert {s.ratio for s in gpu.samples} == {0.87}
    assert (gpu.mem_used_bytes, gpu.mem_total_bytes) == (40000 << 20, 81920 << 20)
    assert (gpu.power_w, gpu.energy_j) == (650.5, 123456.0)
    assert (gpu.processes, gpu.pids, gpu.trouble) == (1, (os.getpid(),), None)


def test_buffer_is_drained_once_and_its_samples_lie_in_the_past(make: Make, driver: nvml.State) -> None:
    gpus, clock = make("gpu 0 util 10")
    first = gpus.read().gpus[0].samples
    again = gpus.read().gpus[0]

    assert 4 <= sum(s.number for s in first) <= 7  # one second at the driver's six a second
    assert all(s.at_s <= clock.boot_s() for s in first)
    assert len(again.samples) == 1  # nothing new in the buffer: the rate of now stands in


def test_without_a_buffer_the_beat_becomes_one_second(make: Make) -> None:
    gpus, _ = make("gpu 0 util 33", "gpu 0 buffer 0")
    snapshot = gpus.read()

    assert peaks(snapshot) == [0.33]
    assert snapshot.beat_s == 1.0


def test_lost_gpu_leaves_its_neighbours_alone(make: Make) -> None:
    gpus, _ = make("count 3", "gpu * util 50", *("err 1 %s 15" % f for f in EVERY_CALL))
    snapshot = gpus.read()

    assert snapshot.state == "ok"
    assert peaks(snapshot) == [0.5, None, 0.5]
    assert snapshot.gpus[1].trouble == "lost"
    assert (snapshot.gpus[1].mem_used_bytes, snapshot.gpus[1].power_w, snapshot.gpus[1].processes) == (None, None, None)


@pytest.mark.parametrize(
    ("code", "words"),
    [(3, "unsupported"), (4, "no permission"), (13, "driver too old"), (15, "lost"), (16, "reset required"), (999, "error 999"), (10, "error 10")],
)
def test_utilisation_that_fails_is_absent_and_says_why(make: Make, code: int, words: str) -> None:
    gpus, _ = make("count 2", "gpu * util 50", "err 0 nvmlDeviceGetUtilizationRates %d" % code, "err 0 nvmlDeviceGetSamples %d" % code)
    snapshot = gpus.read()

    assert peaks(snapshot) == [None, 0.5]
    assert snapshot.gpus[0].trouble == words
    assert snapshot.gpus[0].mem_total_bytes == 81920 << 20


@pytest.mark.parametrize(
    ("function", "figure"),
    [
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy_j"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "processes"),
    ],
)
def test_one_call_that_fails_costs_one_figure(make: Make, function: str, figure: str) -> None:
    gpus, _ = make("gpu 0 util 50", "err 0 %s 999" % function)
    (gpu,) = gpus.read().gpus

    absent = {name for name in ("mem_used_bytes", "power_w", "energy_j", "processes") if getattr(gpu, name) is None}
    assert absent == {figure}
    assert gpu.samples


def test_out_of_range_utilisation_is_absent_not_clamped(make: Make) -> None:
    gpus, _ = make("gpu 0 util 250")
    (gpu,) = gpus.read().gpus

    assert gpu.samples == ()
    assert gpu.trouble == "utilisation out of range"


def test_mig_has_no_utilisation_but_memory_and_processes(make: Make) -> None:
    gpus, _ = make("gpu 0 mig 1", "gpu 0 util 0", "gpu 0 mem 36537 81920", "gpu 0 proc %d 36000" % os.getpid())
    (gpu,) = gpus.read().gpus

    assert gpu.samples == ()
    assert gpu.trouble == "MIG is on: utilisation is not measured"
    assert (gpu.mem_used_bytes, gpu.processes) == (36537 << 20, 1)


@pytest.mark.parametrize("mode", ["-1", "0"])
def test_mig_off_or_unsupported_is_a_plain_gpu(make: Make, mode: str) -> None:
    gpus, _ = make("gpu 0 mig " + mode, "gpu 0 util 40")

    assert peaks(gpus.read()) == [0.4]


def test_integrated_gpu_that_answers_success_with_zeros_is_not_measured(make: Make) -> None:
    gpus, _ = make("gpu 0 name Orin (nvgpu)", "gpu 0 util 0", "gpu 0 proc 0 1")
    (gpu,) = gpus.read().gpus

    assert (gpu.samples, gpu.processes) == ((), None)
    assert gpu.trouble == "integrated GPU: utilisation is not measured"


def test_old_memory_call_stands_in_for_the_new_one(make: Make) -> None:
    gpus, _ = make("gpu 0 memv2 0", "gpu 0 mem 1000 81920")

    assert gpus.read().gpus[0].mem_used_bytes == 1512 << 20  # with the driver's reserve: errs towards "held"


def test_unified_memory_gpu_takes_the_sum_of_its_processes(make: Make) -> None:
    lines = ["err 0 nvmlDeviceGetMemoryInfo 3", "err 0 nvmlDeviceGetMemoryInfo_v2 3", "gpu 0 util 1"]

    assert make(*lines, "gpu 0 proc 11 100", "gpu 0 proc 12 200")[0].read().gpus[0].mem_used_bytes == 300 << 20
    assert make(*lines, "gpu 0 proc 11 -1")[0].read().gpus[0].mem_used_bytes is None
    assert make(*lines)[0].read().gpus[0].mem_used_bytes is None


def test_absurd_memory_is_absent(make: Make) -> None:
    gpus, _ = make("gpu 0 memv2 0", "gpu 0 mem 90000 81920")

    assert gpus.read().gpus[0].mem_used_bytes is None


def test_process_that_cannot_be_seen_still_counts(make: Make) -> None:
    gpus, _ = make("gpu 0 proc 4000001 100", "gpu 0 proc 4294967295 100")
    (gpu,) = gpus.read().gpus

    assert (gpu.processes, gpu.pids) == (2, (4000001,))


def test_nobodys_work_is_neither_counted_nor_followed(make: Make) -> None:
    gpus, _ = make("gpu 0 proc 11 100", "gpu 0 proc 12 100", nobodys=lambda pid: pid == 11)
    (gpu,) = gpus.read().gpus

    assert (gpu.processes, gpu.pids) == (1, (12,))


def test_count_that_drops_keeps_the_lost_gpu_in_the_list(make: Make, driver: nvml.State, log: Lines) -> None:
    gpus, _ = make("count 3", "gpu * util 5")
    gpus.read()
    driver.write("count 2", "gpu * util 5")
    snapshot = gpus.read()

    assert snapshot.count == 3
    assert [(g.uuid, g.trouble) for g in snapshot.gpus] == [(nvml.uuid(0), None), (nvml.uuid(1), None), (nvml.uuid(2), "lost")]
    assert "gpu count dropped" in log.events()


def test_gpu_that_comes_back_is_read_again_without_a_restart(make: Make, driver: nvml.State) -> None:
    gpus, clock = make("count 2", "gpu * util 5", "err 1 nvmlDeviceGetHandleByIndex_v2 15")
    first = gpus.read()
    gpus.read()
    driver.write("count 2", "gpu * util 5")
    clock.move(400)
    again = gpus.read()

    assert (first.count, [g.uuid for g in first.gpus]) == (2, [nvml.uuid(0)])
    assert (again.count, peaks(again)) == (2, [0.05, 0.05])


@pytest.mark.parametrize(
    ("code", "state"), [(9, "no-driver"), (18, "mismatch"), (4, "no-permission"), (17, "no-permission"), (999, "failed")]
)
def test_driver_that_does_not_start_has_a_word_and_a_remedy(make: Make, code: int, state: str) -> None:
    gpus, _ = make("init %d" % code, bus=PciGpus(8, 0))
    snapshot = gpus.read()

    assert (snapshot.state, snapshot.count, snapshot.gpus) == (state, 8, ())
    assert snapshot.because


def test_driver_that_fails_later_is_opened_again_with_a_growing_pause(make: Make, driver: nvml.State, log: Lines) -> None:
    gpus, clock = make("count 2", "gpu * util 60")
    assert gpus.read().state == "ok"
    driver.write("count 2", "init 18", "err * nvmlDeviceGetCount_v2 999")
    states = []
    for _ in range(120):
        states.append(gpus.read())
        clock.move(5.0)
    driver.write("count 2", "gpu * util 60")
    clock.move(300.0)
    back = gpus.read()

    assert {s.state for s in states} == {"failed", "mismatch"}
    assert all(g.samples == () and g.trouble for s in states for g in s.gpus)
    assert [len(s.gpus) for s in states] == [2] * 120
    assert log.events().count("init tried") == 1 + 6 + 1  # at the start, 5, 15, 35, 75, 155 and 315 s after the failure, and at the end
    assert (back.state, len(back.gpus)) == ("ok", 2)


def test_all_gpus_lost_at_once_opens_a_new_session(make: Make, driver: nvml.State, log: Lines) -> None:
    gpus, clock = make("count 2", "gpu * util 60")
    gpus.read()
    driver.write("count 2", "err * nvmlDeviceGetSamples 999", "err * nvmlDeviceGetUtilizationRates 999")
    broken = gpus.read()
    driver.write("count 2", "gpu * util 60")
    clock.move(6.0)
    back = gpus.read()

    assert (broken.state, peaks(broken)) == ("failed", [None, None])
    assert back.state == "ok"
    assert log.events().count("driver session open") == 2


def test_one_session_serves_all_beats(make: Make, log: Lines) -> None:
    gpus, clock = make("count 4", "gpu * util 60")
    for _ in range(20):
        gpus.read()
        clock.move(0.001)

    assert log.events().count("driver session open") == 1


@pytest.mark.parametrize(
    ("bus", "state", "count"),
    [
        (PciGpus(0, 0), "no-gpu", 0),
        (PciGpus(4, 0), "no-library", 4),
        (PciGpus(0, 2), "failed", 2),
        (None, "no-library", None),
    ],
    ids=["no_device_on_the_bus", "device_but_no_library", "amd_device", "bus_unreadable"],
)
def test_missing_library_is_told_from_a_missing_gpu(bus: Optional[PciGpus], state: str, count: Optional[int], log: Lines, clock: ManualClock) -> None:
    class NotFound(Exception):
        value = 12

    def init() -> None:
        raise NotFound

    api = types.SimpleNamespace(NVMLError=NotFound, nvmlInit=init)
    snapshot = NvmlGpus(clock, lambda pid: False, log, load=lambda: api, bus=lambda: bus).read()

    assert (snapshot.state, snapshot.count, snapshot.gpus) == (state, count, ())


def test_module_of_another_package_is_refused_with_the_remedy() -> None:
    stub = types.SimpleNamespace(__file__="/opt/old/pynvml.py", nvmlInit=None)

    with pytest.raises(module.WrongModule, match="/opt/old/pynvml.py lacks .*pip install --force-reinstall nvidia-ml-py"):
        module.load(lambda name: stub)


def test_module_that_is_missing_is_refused_with_the_remedy() -> None:
    def find(name: str) -> Any:
        raise ImportError("No module named 'pynvml'")

    with pytest.raises(module.WrongModule, match="nvidia-ml-py"):
        module.load(find)


def test_installed_module_is_the_right_one() -> None:
    assert module.foreign(module.load()) is None


def test_old_driver_without_a_function_costs_only_that_figure(tmp_path: Path) -> None:
    """In a process of its own: which functions a library exports is settled when it is loaded."""
    import subprocess
    import sys

    library = nvml.build(tmp_path / "old", without="nvmlDeviceGetTotalEnergyConsumption")
    state = nvml.State(tmp_path / "gpus")
    state.write("gpu 0 util 70")
    code = (
        "from agent.gpu import NvmlGpus; from agent.clock import BootClock; from tests.agent.doubles import Lines\n"
        "g = NvmlGpus(BootClock(), lambda pid: False, Lines()).read().gpus[0]\n"
        "print(g.energy_j, g.power_w, {s.ratio for s in g.samples}, g.processes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **nvml.environment(library, state)}, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.stdout.strip() == "None 60.0 {0.7} 0", done.stderr


def test_wall_clock_set_back_does_not_stop_the_samples(make: Make) -> None:
    gpus, clock = make("gpu 0 util 20")
    from datetime import timedelta

    clock.wall += timedelta(hours=2)
    gpus.read()
    clock.wall -= timedelta(hours=2)  # the driver's stamps would now lie two hours before what was last seen
    clock.now()  # type: ignore[attr-defined]
    samples = gpus.read().gpus[0].samples

    assert samples
    assert all(abs(s.at_s - clock.boot_s()) < 5 for s in samples)
