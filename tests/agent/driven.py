"""The real pynvml over the compiled driver, in this process: what the tests of GPUs share. The fixture `make` is in conftest."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Callable, List, Optional, Tuple

from agent import nvml as module
from agent.gpu import NvmlGpus
from agent.pci import PciGpus
from agent.readings import GpuSnapshot
from tests.agent.doubles import Lines, ManualClock
from tests.fakes import nvml

NO_BUS = PciGpus(0, 0)
Make = Callable[..., Tuple[NvmlGpus, ManualClock]]

EVERY_CALL = (
    "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetSamples", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMigMode",
)  # fmt: skip


class WallClock(ManualClock):
    """The fake driver stamps its samples by this machine's clock, so both clocks are the real ones, moved on by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.wall = _utc()

    def now(self) -> None:
        real = _utc()
        self.now_s += (real - self.wall).total_seconds()
        self.wall = real


def _utc() -> Any:
    return datetime.now(timezone.utc)


class Counting:
    """The real module; attempts to open a session are kept as log lines."""

    def __init__(self, log: Lines) -> None:
        self._api, self._log = module.load(), log

    def __getattr__(self, name: str) -> Any:
        if name == "nvmlInit":
            self._log.debug("init tried")
        return getattr(self._api, name)


def makes(driver: nvml.State, log: Lines) -> Any:
    """A fixture's generator: yields a function that writes the driver's state and gives a source with its clock."""
    made: List[NvmlGpus] = []
    api = Counting(log)

    def build(*lines: str, bus: Optional[PciGpus] = NO_BUS, nobodys: Callable[[int], bool] = lambda pid: False) -> Tuple[NvmlGpus, ManualClock]:
        driver.write(*lines)
        clock = WallClock()
        gpus = NvmlGpus(clock, nobodys, log, bus=lambda: bus, load=lambda: api)
        made.append(gpus)
        return gpus, clock

    yield build
    driver.write()
    for gpus in made:
        gpus.close()


def peaks(snapshot: GpuSnapshot) -> List[Optional[float]]:
    return [max((s.ratio for s in gpu.samples), default=None) for gpu in snapshot.gpus]
