"""Whatever fails, and in whatever order: what was not read is absent in the report, never zero."""

from __future__ import annotations

from typing import Any, Dict, List

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.build import OpenWindow
from agent.gpu import NvmlGpus
from agent.pci import PciGpus
from agent.readings import Reading
from tests.agent.doubles import Lines, ManualClock

CALLS = (
    "nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
    "nvmlSystemGetDriverVersion", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetSamples", "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMigMode",
)  # fmt: skip
CODES = (1, 3, 4, 6, 9, 10, 12, 13, 15, 16, 17, 18, 28, 999, -1)  # -1: the call returns nonsense


class Thing:
    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)


class BusyDriver:
    """Two GPUs that work hard and hold memory: every true figure is above zero. ``failing`` is changed from beat to beat."""

    NVML_GPU_UTILIZATION_SAMPLES, nvmlMemory_v2 = 1, 2

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            self.value = value

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.failing: Dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            code = self.failing.get(name)
            if code == -1:
                return None
            if code is not None:
                raise self.NVMLError(code)
            return self.answer(name, arguments)

        return call

    def answer(self, name: str, arguments: Any) -> Any:
        now_us = int(self.clock.utc().timestamp() * 1e6)
        samples = [
            Thing(timeStamp=now_us - 1_000_000 * back, sampleValue=Thing(uiVal=value)) for back, value in ((9999, 0), (2, 100), (1, 300), (0, 64))
        ]
        return {
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetHandleByIndex": arguments[:1],
            "nvmlDeviceGetUUID": "GPU-%s" % (arguments[:1],),
            "nvmlDeviceGetName": "NVIDIA H100",
            "nvmlSystemGetDriverVersion": "580",
            "nvmlDeviceGetUtilizationRates": Thing(gpu=77),
            "nvmlDeviceGetSamples": (1, samples),
            "nvmlDeviceGetMemoryInfo": Thing(used=5 << 30, total=80 << 30),
            "nvmlDeviceGetPowerUsage": 400000,
            "nvmlDeviceGetTotalEnergyConsumption": 9_000_000,
            "nvmlDeviceGetMigMode": (0, 0),
            "nvmlDeviceGetComputeRunningProcesses": [Thing(pid=4242, usedGpuMemory=5 << 30)],
            "nvmlDeviceGetGraphicsRunningProcesses": [],
            "nvmlDeviceGetMPSComputeRunningProcesses": [],
        }.get(name)


beats = st.lists(st.dictionaries(st.sampled_from(CALLS), st.sampled_from(CODES), max_size=8), min_size=1, max_size=12)


@given(beats, st.sampled_from([1.0, 5.0, 40.0]))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_sequence_of_failures_turns_absent_into_zero(failures: List[Dict[str, int]], pause_s: float) -> None:
    clock = ManualClock()
    driver = BusyDriver(clock)
    gpus = NvmlGpus(clock, lambda pid: False, Lines(), load=lambda: driver, bus=lambda: PciGpus(2, 0))
    window, known = OpenWindow(clock.boot_s()), {}
    for failing in failures:
        driver.failing = failing
        snapshot = gpus.read()
        window.add(Reading(snapshot, None), 5.0)
        known.update({gpu.uuid: gpu.model for gpu in snapshot.gpus})
        clock.move(pause_s)

        assert snapshot.state != "no-gpu"
        assert snapshot.count is None or snapshot.count >= 2

    for gpu in window.gpus(known, None):
        figures = (gpu.peak_ratio, gpu.mean_ratio, gpu.samples, gpu.mem_used_bytes, gpu.mem_total_bytes, gpu.power_w, gpu.energy_j, gpu.processes)
        assert all(figure is None or figure > 0 for figure in figures), gpu
        assert gpu.peak_ratio in (None, 0.64, 0.77, 1.0)  # never 3.0 out of range, nor the 0 left over from hours ago
        assert (gpu.peak_ratio is None) == (gpu.covered_s is None)


def test_a_burst_between_two_beats_is_in_the_peak() -> None:
    """The rate of now would say 77 % or less; only the buffer knows of the 100 % two seconds ago."""
    clock = ManualClock()
    driver = BusyDriver(clock)
    gpus = NvmlGpus(clock, lambda pid: False, Lines(), load=lambda: driver, bus=lambda: PciGpus(2, 0))
    gpus.read()
    clock.move(5.0)

    assert [s.ratio for s in gpus.read().gpus[0].samples] == [1.0, 0.64]
