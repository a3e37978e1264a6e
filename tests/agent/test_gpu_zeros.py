"""Zeros that a driver gives for a GPU that works: which of them are not taken for rest, and how a GPU is found again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agent.gpu import NvmlGpus
from agent.pci import PciGpus
from tests.agent.doubles import Lines, ManualClock
from tests.agent.driven import Make, peaks
from tests.fakes import nvml


@pytest.mark.parametrize("code", [1, 4, 10, 17, 999])
def test_zero_of_a_gpu_that_may_be_cut_into_instances_is_none(make: Make, code: int) -> None:
    gpus, _ = make("gpu 0 util 0", "err 0 nvmlDeviceGetMigMode %d" % code)
    (gpu,) = gpus.read().gpus

    assert gpu.samples == ()
    assert gpu.trouble == "utilisation 0 not believed: whether MIG is on cannot be read"


def test_use_of_a_gpu_that_may_be_cut_into_instances_is_use(make: Make) -> None:
    assert peaks(make("gpu 0 util 40", "err 0 nvmlDeviceGetMigMode 999")[0].read()) == [0.4]


@pytest.mark.parametrize("code", [3, 13], ids=["a_card_without_mig", "a_driver_from_before_mig"])
def test_zero_of_a_gpu_that_cannot_be_cut_is_zero(make: Make, code: int) -> None:
    assert peaks(make("gpu 0 util 0", "err 0 nvmlDeviceGetMigMode %d" % code)[0].read()) == [0.0]


def test_gpu_that_was_cut_stays_so_while_it_cannot_be_asked(make: Make, driver: nvml.State) -> None:
    gpus, _ = make("gpu 0 mig 1", "gpu 0 slice 9000 40000")
    gpus.read()
    driver.write("gpu 0 mig 0", "gpu 0 util 0", "err 0 nvmlDeviceGetMigMode 999")
    seen = [gpus.read().gpus[0] for _ in range(4)]

    assert all(gpu.samples == () for gpu in seen)


@pytest.mark.parametrize("most", [0, 17, -1])
def test_instances_that_cannot_all_be_asked_are_not_an_empty_gpu(make: Make, most: int) -> None:
    gpus, _ = make("gpu 0 mig 1", "gpu 0 migmax %d" % most)
    (gpu,) = gpus.read().gpus

    assert (gpu.samples, gpu.slices) == ((), None)


def test_buffer_that_stopped_at_zero_is_held_against_the_rate_of_now(make: Make) -> None:
    gpus, _ = make("gpu 0 util 0", "gpu 0 rate 55")
    seen = [peaks(gpus.read())[0] for _ in range(4)]

    assert seen.count(0.55) >= 2


@pytest.mark.parametrize("function", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption"])
def test_counter_that_is_not_kept_answers_zero_and_is_absent(make: Make, function: str) -> None:
    gpus, _ = make("gpu 0 power 0", "gpu 0 energy 0")
    (gpu,) = gpus.read().gpus

    assert (gpu.power_w, gpu.energy_j, gpu.energy_at_s) == (None, None, None)


def test_integrated_gpu_has_no_figure_at_all(make: Make) -> None:
    gpus, _ = make("gpu 0 name Orin (nvgpu)", "gpu 0 mem 0 30000")
    (gpu,) = gpus.read().gpus

    assert (gpu.samples, gpu.mem_used_bytes, gpu.mem_total_bytes, gpu.power_w, gpu.energy_j, gpu.processes) == ((), None, None, None, None, None)


# --- a GPU that is gone for one session ---


def test_gpu_that_was_reset_is_read_again_by_a_new_session(make: Make, driver: nvml.State, log: Lines) -> None:
    """Its handle stays lost for as long as the session lasts, while its neighbours and the count are as ever."""
    gpus, clock = make("count 2", "gpu * util 5")
    gpus.read()
    driver.write("count 2", "gpu * util 5", "gpu 1 reset 1")
    lost = [peaks(gpus.read()) for _ in range(3)]
    opened = log.events().count("driver session open")
    clock.move(5.1)
    back = gpus.read()

    assert lost == [[0.05, None]] * 3
    assert (opened, log.events().count("driver session open")) == (1, 2)
    assert peaks(back) == [0.05, 0.05]


def test_gpu_that_stays_lost_is_tried_with_a_growing_pause(make: Make, driver: nvml.State, log: Lines) -> None:
    gpus, clock = make("count 2", "gpu * util 5", "err 1 nvmlDeviceGetUtilizationRates 15", "err 1 nvmlDeviceGetSamples 15")
    for _ in range(120):
        snapshot = gpus.read()
        clock.move(5.0)
        assert peaks(snapshot)[1] is None
        assert peaks(snapshot)[0] is not None

    assert 5 <= log.events().count("driver session open") <= 8


def test_gpu_that_another_took_the_place_of_stays_in_the_list_and_the_new_one_is_read(make: Make, driver: nvml.State) -> None:
    gpus, clock = make("count 2", "gpu * util 5")
    gpus.read()
    driver.write("count 2", "gpu * util 5", "gpu 1 reset 1", "gpu 1 uuid GPU-new")
    gpus.read()
    clock.move(5.1)
    snapshot = gpus.read()

    assert {g.uuid: g.trouble for g in snapshot.gpus} == {nvml.uuid(0): None, nvml.uuid(1): "lost", "GPU-new": None}
    assert snapshot.count == 3


# --- the wall clock, by which the driver stamps its samples ---


class Stamping:
    """A driver that keeps 100 samples, one a second, as the wall clock stood when they were taken."""

    NVML_GPU_UTILIZATION_SAMPLES, nvmlMemory_v2 = 1, 2

    class NVMLError(Exception):
        value = 3

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.kept = clock, []  # type: Tuple[ManualClock, List[Any]]

    def tick(self, percent: int) -> None:
        self.clock.move(1.0)
        stamp = int(self.clock.utc().timestamp() * 1e6)
        self.kept.append(type("Sample", (), {"timeStamp": stamp, "sampleValue": type("Value", (), {"uiVal": percent})()})())

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name == "nvmlDeviceGetSamples":
                return 1, [sample for sample in self.kept if sample.timeStamp > arguments[2]]
            if name in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
                return 1
            if name == "nvmlDeviceGetUUID":
                return "GPU-0"
            if name.endswith("Processes"):
                return []
            if name in ("nvmlInit", "nvmlShutdown"):
                return None
            raise self.NVMLError

        return call


@pytest.mark.parametrize("step", [-3600.0, -8.0, -1.0, -0.3, 0.3, 1.0, 8.0, 3600.0], ids=str)
def test_work_right_before_the_clock_was_set_is_seen(step: float) -> None:
    clock = ManualClock()
    driver = Stamping(clock)
    gpus = NvmlGpus(clock, lambda pid: False, Lines(), load=lambda: driver, bus=lambda: PciGpus(1, 0))
    for _ in range(5):
        driver.tick(0)
    gpus.read()
    for percent in (0, 90, 0):
        driver.tick(percent)
    clock.wall += timedelta(seconds=step)
    for _ in range(2):
        driver.tick(0)
    seen = peaks(gpus.read())
    for _ in range(15):  # set back by a few seconds, it is seen once more when the clock comes there again
        driver.tick(0)
        gpus.read()
    driver.tick(0)

    assert seen == [0.9]
    assert peaks(gpus.read()) == [0.0]


def test_what_stood_low_around_a_step_of_the_clock_is_counted() -> None:
    """It is one sample with a high peak, and most of it was waiting."""
    clock = ManualClock()
    driver = Stamping(clock)
    gpus = NvmlGpus(clock, lambda pid: False, Lines(), load=lambda: driver, bus=lambda: PciGpus(1, 0))
    driver.tick(0)
    gpus.read()
    for percent in (0, 90, 0):
        driver.tick(percent)
    clock.wall += timedelta(seconds=3600)
    for _ in range(2):
        driver.tick(0)
    (sample,) = gpus.read().gpus[0].samples

    assert (sample.ratio, sample.low) == (0.9, sample.number - 1)


def test_buffer_left_over_from_before_the_clock_was_set_is_no_sample() -> None:
    clock = ManualClock()
    driver = Stamping(clock)
    gpus = NvmlGpus(clock, lambda pid: False, Lines(), load=lambda: driver, bus=lambda: PciGpus(1, 0))
    driver.tick(0)
    gpus.read()
    clock.move(5.0)
    clock.wall += timedelta(seconds=7200)

    assert gpus.read().gpus[0].samples == ()
