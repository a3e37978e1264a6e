"""What particular products, drivers and surroundings answer, and what is made of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, List

import pytest

from agent import pci
from agent.gpu import FIRST_RETRY_S, MOST_RETRY_S, NvmlGpus
from agent.pci import PciGpus
from agent.readings import GpuReading
from tests.agent.doubles import Lines
from tests.agent.driven import EVERY_CALL, Make, WallClock
from tests.fakes import nvml

US = os.getpid()
# What a vGPU guest is not told: all but the name, the utilisation and the memory.
GUEST = [
    "err * %s 3" % name for name in EVERY_CALL if name not in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2")
]


def read(made: Any) -> GpuReading:
    (gpu,) = made[0].read().gpus
    return gpu  # type: ignore[no-any-return]


@pytest.mark.parametrize(("percent", "ratio"), [(0, 0.0), (1, 0.01), (100, 1.0)])
def test_virtual_gpu_that_tells_little_still_tells_its_utilisation(make: Make, percent: int, ratio: float) -> None:
    gpu = read(make("gpu 0 name GRID T4-16Q", "gpu 0 util %d" % percent, "gpu 0 mem 900 16384", *GUEST))

    assert [s.ratio for s in gpu.samples] == [ratio]
    assert (gpu.mem_used_bytes, gpu.power_w, gpu.energy_j, gpu.processes, gpu.trouble) == (900 << 20, None, None, None, None)


def test_gpu_that_tells_nothing_has_no_figures_and_no_zeros(make: Make) -> None:
    gpu = read(make("gpu 0 util 0", *("err * %s 3" % name for name in EVERY_CALL)))

    figures = (gpu.mem_used_bytes, gpu.mem_total_bytes, gpu.power_w, gpu.energy_j, gpu.processes)
    assert (gpu.samples, gpu.trouble, figures) == ((), "unsupported", (None,) * 5)


def test_unified_memory_that_no_process_takes_is_not_known_rather_than_none(make: Make) -> None:
    """The sum over nobody proves nothing: a process that draws is not asked for its memory."""
    lines = ["err 0 nvmlDeviceGetMemoryInfo 3", "err 0 nvmlDeviceGetMemoryInfo_v2 3", "gpu 0 util 0"]

    assert read(make(*lines)).mem_used_bytes is None
    assert read(make(*lines, "gpu 0 proc %d 100" % US, "gpu 0 graphics 4000001")).mem_used_bytes is None


@pytest.mark.parametrize(
    ("family", "vendor", "expected"),
    [("Tegra", None, True), ("Tegra", "0x10de", False), ("i.MX8", None, False), (None, None, False)],
    ids=["jetson", "tegra_with_a_card", "another_chip", "a_server"],
)
def test_jetson_is_told_by_its_chip(tmp_path: Path, family: str, vendor: str, expected: bool) -> None:
    device = tmp_path / "bus" / "pci" / "devices" / "0"
    device.mkdir(parents=True)
    if vendor is not None:
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text("0x030200\n")
    if family is not None:
        (tmp_path / "devices" / "soc0").mkdir(parents=True)
        (tmp_path / "devices" / "soc0" / "family").write_text(family + "\n")

    assert pci.integrated(tmp_path) is expected


def test_jetson_under_a_name_that_does_not_tell_is_not_measured(driver: nvml.State, log: Lines) -> None:
    driver.write("gpu 0 name NVIDIA Thor", "gpu 0 util 0", "gpu 0 proc 0 1")
    gpus = NvmlGpus(WallClock(), lambda pid: False, log, integrated=lambda: True)
    (gpu,) = gpus.read().gpus
    gpus.close()

    assert (gpu.samples, gpu.processes, gpu.trouble) == ((), None, "integrated GPU: utilisation is not measured")


def by_uuid(gpus: NvmlGpus) -> Any:
    return {gpu.uuid: max(sample.ratio for sample in gpu.samples) for gpu in gpus.read().gpus}


def test_history_follows_the_uuid_when_the_order_changes(make: Make, driver: nvml.State) -> None:
    gpus, clock = make("count 2", "gpu 0 uuid GPU-a", "gpu 1 uuid GPU-b", "gpu 0 util 90", "gpu 1 util 10")
    before = by_uuid(gpus)
    driver.write("count 2", "gpu 0 uuid GPU-b", "gpu 1 uuid GPU-a", "gpu 0 util 10", "gpu 1 util 90", "err * nvmlDeviceGetCount_v2 1")
    gpus.read()  # the driver was loaded anew: the session is gone
    driver.write("count 2", "gpu 0 uuid GPU-b", "gpu 1 uuid GPU-a", "gpu 0 util 10", "gpu 1 util 90")
    clock.move(FIRST_RETRY_S + 1)

    assert before == by_uuid(gpus) == {"GPU-a": 0.9, "GPU-b": 0.1}


def test_pause_between_tries_has_a_cap_and_starts_anew_after_a_success(make: Make, driver: nvml.State, log: Lines) -> None:
    gpus, clock = make("init 9", bus=PciGpus(1, 0))
    tries: List[float] = []
    for _ in range(400):
        before = log.events().count("init tried")
        gpus.read()
        if log.events().count("init tried") > before:
            tries.append(clock.boot_s())
        clock.move(5.0)
    pauses = [round(tries[i + 1] - tries[i]) for i in range(len(tries) - 1)]
    driver.write("gpu 0 util 5")
    clock.move(MOST_RETRY_S)
    well = gpus.read().state
    driver.write("err * nvmlDeviceGetCount_v2 9")
    gpus.read()
    driver.write("gpu 0 util 5")
    clock.move(FIRST_RETRY_S + 0.1)

    assert pauses[:6] == [5, 10, 20, 40, 80, 160]
    assert set(pauses[6:]) == {300}
    assert (well, gpus.read().state) == ("ok", "ok")


@pytest.mark.parametrize("code", [9, 18, 999])
def test_driver_that_goes_while_it_is_used_leaves_every_gpu_named_and_without_figures(make: Make, driver: nvml.State, code: int) -> None:
    gpus, _ = make("count 2", "gpu * util 60")
    gpus.read()
    driver.write("count 2", *("err * %s %d" % (name, code) for name in EVERY_CALL), "err * nvmlDeviceGetCount_v2 %d" % code)
    snapshot = gpus.read()

    assert snapshot.state != "ok"
    assert [(g.uuid, g.samples, g.mem_used_bytes, g.processes) for g in snapshot.gpus] == [(nvml.uuid(i), (), None, None) for i in range(2)]


def test_full_use_without_a_visible_process_is_use(make: Make) -> None:
    gpu = read(make("gpu 0 util 100", "gpu 0 mem 70000 81920"))

    assert ({s.ratio for s in gpu.samples}, gpu.processes, gpu.mem_used_bytes) == ({1.0}, 0, 70000 << 20)


def test_size_that_cannot_be_leaves_only_the_count(make: Make) -> None:
    """As when binding and driver disagree on the structure and numbers change places."""
    gpu = read(make("gpu 0 util 1", "gpu 0 proc %d 100" % US, "gpu 0 proc 4294967295 100"))
    more_than_there_is = read(make("gpu 0 util 1", "gpu 0 proc %d 90000" % US, "gpu 0 proc 4000001 100"))

    assert (gpu.processes, dict(gpu.pid_bytes)) == (2, {US: None})
    assert (more_than_there_is.processes, dict(more_than_there_is.pid_bytes)) == (2, {US: None, 4000001: None})


def test_process_that_becomes_another_program_is_asked_again(make: Make) -> None:
    answers = [True, False]
    gpus, _ = make("gpu 0 util 1", "gpu 0 proc %d 100" % US, nobodys=lambda pid: answers.pop(0))
    seen = [gpus.read().gpus[0].processes for _ in range(15)]

    assert seen == [0] * 9 + [1] * 6  # asked twice, and the answer is kept meanwhile


def test_environment_of_cuda_hides_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert len(make("count 3")[0].read().gpus) == 3


def test_high_clock_and_power_are_no_use(make: Make) -> None:
    gpu = read(make("gpu 0 util 0", "gpu 0 power 120000", "gpu 0 mem 20000 81920"))

    assert {s.ratio for s in gpu.samples} == {0.0}
    assert gpu.power_w == 120.0
