"""GPUs cut into instances: no utilisation is measured, and only a plainly empty one is known to do nothing."""

from __future__ import annotations

import os
from typing import Any, List, Optional, Tuple

import pytest

from agent.build import OpenWindow
from agent.readings import GpuReading, Reading
from agent.report import Gpu
from tests.agent.driven import Make, peaks
from tests.fakes import nvml

US = os.getpid()


def read(made: Any) -> GpuReading:
    gpus, _ = made
    (gpu,) = gpus.read().gpus
    return gpu  # type: ignore[no-any-return]


def test_slices_are_listed_below_their_gpu_and_counted_once(make: Make) -> None:
    gpus, _ = make("count 2", "gpu 1 mig 1", "gpu 1 mem 11000 81920", "gpu 1 slice 9000 40000", "gpu 1 slice 20 20000", "gpu 1 sliceproc 0 %d 8900" % US)
    snapshot = gpus.read()

    assert (snapshot.count, [g.uuid for g in snapshot.gpus]) == (2, [nvml.uuid(0), nvml.uuid(1)])
    assert snapshot.gpus[0].slices is None
    assert [(s.uuid, s.mem_used_bytes, s.mem_total_bytes, s.processes) for s in snapshot.gpus[1].slices or ()] == [
        (nvml.slice_uuid(1, 0), 9000 << 20, 40000 << 20, 1),
        (nvml.slice_uuid(1, 1), 20 << 20, 20000 << 20, 0),
    ]
    assert (snapshot.gpus[1].processes, snapshot.gpus[1].pids) == (1, (US,))


@pytest.mark.parametrize(
    "lines",
    [
        ["gpu 0 slice 9000 40000", "gpu 0 sliceproc 0 %d 8900" % US],
        ["gpu 0 slice 20 40000", "gpu 0 sliceproc 0 %d 10" % US],
        ["gpu 0 slice 20 40000", "gpu 0 proc 4000001 10"],
        ["gpu 0 slice 9000 40000"],
        ["gpu 0 slice 20 40000", "gpu 0 mem 9000 81920"],
        ["gpu 0 mem 9000 81920"],
        ["gpu 0 slice 20 40000", "err 0 nvmlDeviceGetComputeRunningProcesses_v3 4"],
        ["gpu 0 slice 20 40000", "err 0 nvmlDeviceGetMemoryInfo_v2 999", "err 0 nvmlDeviceGetMemoryInfo 999"],
        ["err 0 nvmlDeviceGetMaxMigDeviceCount 999"],
        ["gpu 0 slice 20 40000", "err 0 nvmlDeviceGetMigDeviceHandleByIndex 4"],
        ["gpu 0 graphics %d" % US],
    ],
    ids=[
        "a_process_with_memory", "a_process_with_hardly_any", "a_process_of_another_namespace", "memory_of_a_process_not_shown",
        "memory_on_the_gpu_itself", "memory_and_no_instance", "processes_may_not_be_listed", "memory_unreadable", "instances_unknown",
        "instances_refused", "a_process_that_draws",
    ],
)  # fmt: skip
def test_mig_gpu_that_may_be_used_has_no_utilisation(make: Make, lines: List[str]) -> None:
    gpu = read(make("gpu 0 mig 1", "gpu 0 util 0", *lines))

    assert gpu.samples == ()
    assert gpu.trouble == "MIG is on: utilisation is not measured"


@pytest.mark.parametrize(
    ("lines", "count"),
    [([], 0), (["gpu 0 slice 20 20000"] * 3, 3), (["gpu 0 slice 20 10000"] * 7 + ["gpu 0 mem 300 81920"], 7)],
    ids=["no_instance", "three_empty_instances", "seven_with_a_little_each"],
)
def test_plainly_empty_mig_gpu_does_nothing(make: Make, lines: List[str], count: int) -> None:
    gpu = read(make("gpu 0 mig 1", "gpu 0 util 0", *lines))

    assert [s.ratio for s in gpu.samples] == [0.0]
    assert (gpu.trouble, gpu.processes, len(gpu.slices or ())) == (None, 0, count)


def test_empty_mig_gpu_is_looked_at_every_second(make: Make) -> None:
    gpus, _ = make("gpu 0 mig 1")

    assert gpus.read().beat_s == 1.0


def test_mig_switched_on_later_is_noticed(make: Make, driver: nvml.State) -> None:
    gpus, _ = make("gpu 0 util 40", "gpu 0 mig 0")
    first = peaks(gpus.read())
    driver.write("gpu 0 mig 1", "gpu 0 slice 9000 40000", "gpu 0 sliceproc 0 %d 8900" % US)
    seen = [gpus.read().gpus[0] for _ in range(3)]

    assert first == [0.4]
    assert all(gpu.samples == () for gpu in seen)
    assert (seen[-1].trouble, seen[-1].processes) == ("MIG is on: utilisation is not measured", 1)


def test_slice_that_goes_and_one_that_comes_are_seen(make: Make, driver: nvml.State) -> None:
    gpus, _ = make("gpu 0 mig 1", "gpu 0 slice 20 20000")
    gpus.read()
    driver.write("gpu 0 mig 1", "gpu 0 slice 20 20000", "gpu 0 slice 9000 20000", "gpu 0 sliceproc 1 %d 8000" % US)
    seen = [gpus.read().gpus[0] for _ in range(3)]

    assert [len(gpu.slices or ()) for gpu in seen][-1] == 2
    assert (seen[-1].samples, seen[-1].processes) == ((), 1)


def test_process_utilisation_is_never_asked(make: Make) -> None:
    """With MIG on it is 0 for a process that computes, and without it lags by seconds; so it is no witness at all."""
    gpus, _ = make("gpu 0 util 50", "err * nvmlDeviceGetProcessUtilization 6")

    assert peaks(gpus.read()) == [0.5]
    assert not any("ProcessUtil" in name for name in _asked(gpus))


def _asked(gpus: Any) -> List[str]:
    asked: List[str] = []
    real = gpus._call.api

    class Noting:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(real, name)

    gpus._call.api = Noting()
    for _ in range(4):
        gpus.read()
    return asked


def reported(made: Any, windows: int = 1) -> Tuple[Optional[Gpu], ...]:
    gpus, clock = made
    window = OpenWindow(clock.boot_s())
    window.add(Reading(gpus.read(), None), 5.0)
    return window.gpus({nvml.uuid(0): None}, None)


def test_report_lists_the_slices(make: Make) -> None:
    (gpu,) = reported(make("gpu 0 mig 1", "gpu 0 slice 9000 40000", "gpu 0 sliceproc 0 %d 8900" % US))

    assert gpu is not None
    assert (gpu.peak_ratio, gpu.covered_s, gpu.processes) == (None, None, 1)
    assert [(s.uuid, s.processes) for s in gpu.slices or ()] == [(nvml.slice_uuid(0, 0), 1)]
