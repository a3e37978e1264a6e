"""
NVML to per-GPU readings, through one long session.

Each call on each GPU fails alone: its figure is None and nothing else changes. Only
when the driver as a whole fails is the session closed and opened again, with a
growing pause and without a restart of the process. GPUs are known by UUID; their
index may change from boot to boot.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from agent import nvml, pci
from agent.calls import Calls, Failed, as_text
from agent.clock import Clock
from agent.device import Device, DeviceReader
from agent.readings import FAILED, NO_GPU, NO_LIBRARY, OK, GpuReading, GpuSnapshot, Log
from agent.utilisation import FALLBACK_BEAT_S, Moment, Util

FIRST_RETRY_S, MOST_RETRY_S = 5.0, 300.0
_CLOCK_STEP_S = 0.25


class NvmlGpus:
    """
    The real GPU source.

    ``nobodys(pid)`` tells processes that are nobody's work (None of its answers may
    raise). ``doing`` names the call in progress. Not safe for two threads.
    """

    def __init__(
        self,
        clock: Clock,
        nobodys: Callable[[int], bool],
        log: Log,
        load: Callable[[], Any] = nvml.load,
        bus: Callable[[], Optional[pci.PciGpus]] = pci.count,
        integrated: Callable[[], bool] = pci.integrated,
    ) -> None:
        self._clock, self._log, self._bus, self._integrated = clock, log, bus, integrated
        self._call = Calls(load)
        self._reader = DeviceReader(self._call, nobodys)
        self._open = False
        self._on_chip = False  # the GPUs are part of the machine's own chip
        self._devices: Dict[str, Device] = {}
        self._count: Optional[int] = None
        self._unopened = 0  # indices that the driver lists and will not hand out
        self._dead = False  # a GPU answered nothing at the last beat, though others did
        self._driver: Optional[str] = None
        self._last_failure = GpuSnapshot(FAILED)
        self._retry_at, self._retry_s = -math.inf, FIRST_RETRY_S
        self._wall_minus_boot: Optional[float] = None

    @property
    def doing(self) -> str:
        return self._call.doing

    # --- the session ---

    def read(self) -> GpuSnapshot:
        """All GPUs now. While the driver fails it is tried again only after the pause; between, the last failure is repeated."""
        now = self._clock.boot_s()
        if not self._open:
            if now < self._retry_at:
                return self._last_failure
            failure = self._connect()
            if failure is not None:
                return self._fail(now, failure)
        try:
            count = self._call("nvmlDeviceGetCount", to=int)
        except Failed as failed:
            self.close()
            return self._fail(now, self._without_driver(failed.error))
        if count != self._count or (self._troubled() and now >= self._retry_at):
            if count == self._count:
                self._back_off(now)
            if self._dead:  # a handle stays lost for as long as its session lasts, whatever has become of the GPU
                self.close()
                failure = self._connect()
                if failure is not None:
                    return self._fail(now, failure)
            self._find_devices(count)
        return self._read_all(now, count)

    def close(self) -> None:
        """End the session; harmless when there is none."""
        if self._open:
            self._open = False
            try:
                self._call("nvmlShutdown")
            except Failed as failed:
                self._log.warning("driver session did not close", because=nvml.trouble(failed.error))

    def _connect(self) -> Optional[GpuSnapshot]:
        """Open the session. Returns what went wrong, or None."""
        try:
            if self._call.load():
                file = str(getattr(self._call.api, "__file__", "?"))
                self._log.info("nvml module loaded", file=file, foreign=nvml.foreign(self._call.api))
            self._call("nvmlInit")
        except nvml.WrongModule as error:
            return self._unreadable(FAILED, str(error))
        except Failed as failed:
            return self._without_driver(failed.error)
        self._open, self._dead = True, False
        self._count = None  # look for devices at once
        self._on_chip = self._integrated()
        self._driver = self._call.text("nvmlSystemGetDriverVersion")
        self._log.info("driver session open", driver=self._driver)
        return None

    def _without_driver(self, error: BaseException) -> GpuSnapshot:
        code = nvml.code_of(error)
        if code == nvml.LIBRARY_NOT_FOUND:
            return self._unreadable(NO_LIBRARY, "libnvidia-ml.so.1 is not installed; install the driver's user-space libraries")
        if code == nvml.NO_DEVICE:
            return self._unreadable(FAILED, "the driver finds no GPU; see dmesg")
        state, because = nvml.state(error)
        return self._unreadable(state, because)

    def _unreadable(self, state: str, because: str) -> GpuSnapshot:
        """A failure as a snapshot: "no GPU" only where the bus shows none and the driver never did."""
        bus = self._bus()
        if bus is None:
            return GpuSnapshot(state, because, count=len(self._devices) or None)
        count = max(bus.nvidia, len(self._devices))
        if count == 0 and bus.amd:
            return GpuSnapshot(FAILED, "AMD GPUs cannot be read yet", count=bus.amd)
        if count == 0 and state in (NO_LIBRARY, FAILED):
            return GpuSnapshot(NO_GPU, "no GPU on the PCI bus", count=0)
        return GpuSnapshot(state, because, count=count or None)

    def _fail(self, now: float, failure: GpuSnapshot) -> GpuSnapshot:
        if failure != self._last_failure and failure.state != NO_GPU:
            self._log.warning("gpus cannot be read", state=failure.state, because=failure.because)
        gone = tuple(GpuReading(d.uuid, d.model, trouble=failure.state) for d in self._devices.values())
        self._last_failure = replace(failure, gpus=gone, driver=self._driver)
        self._back_off(now)
        return self._last_failure

    def _back_off(self, now: float) -> None:
        self._retry_at = now + self._retry_s
        self._retry_s = min(2 * self._retry_s, MOST_RETRY_S)

    def _troubled(self) -> bool:
        return self._dead or self._unopened > 0 or any(d.missing is not None for d in self._devices.values())

    def _find_devices(self, count: int) -> None:
        """Match indices to UUIDs. A GPU that was there once and is not handed out now stays in the list, as missing."""
        found: Set[str] = set()
        self._unopened = 0
        for index in range(count):
            try:
                handle: Any = self._call("nvmlDeviceGetHandleByIndex", index, on=index)
                uuid = self._call("nvmlDeviceGetUUID", handle, on=index, to=as_text)
            except Failed as failed:
                self._unopened += 1
                self._log.warning("gpu has no handle", gpu=index, because=nvml.trouble(failed.error))
                continue
            found.add(uuid)
            old = self._devices.get(uuid)
            model = self._call.text("nvmlDeviceGetName", handle, on=index) or (old.model if old else None)
            self._devices[uuid] = Device(index, handle, uuid, model, old.seen_us if old else None)
        for uuid, device in self._devices.items():
            if uuid not in found:
                device.missing = "lost"
        if self._count is not None and count < self._count:
            self._log.warning("gpu count dropped", was=self._count, now=count)
        self._count = count

    # --- one beat ---

    def _read_all(self, now: float, count: int) -> GpuSnapshot:
        moment = self._moment()
        there = [device for device in self._devices.values() if device.missing is None]
        present: List[Tuple[GpuReading, Util]] = [self._reader.read(device, moment, self._on_chip) for device in there]
        dead = any(util.dead for _, util in present)
        if dead and not self._dead and self._retry_at <= now:
            self._retry_at = now + self._retry_s  # it may be a passing thing
        self._dead = dead
        if present and all(util.dead for _, util in present):
            # Every GPU at once: the session is broken rather than the GPUs. The next read opens a new one.
            state, because = FAILED, "no GPU answers: %s" % present[0][1].trouble
            self.close()
            gpus = tuple(replace(reading, samples=()) for reading, _ in present) + self._missing()
            return replace(self._fail(now, GpuSnapshot(state, because, count=count)), gpus=gpus)
        if not self._troubled():
            self._retry_at, self._retry_s = -math.inf, FIRST_RETRY_S
        by_rate = any(util.by_rate for _, util in present)
        if count == 0 and not self._devices:
            return self._unreadable(FAILED, "the driver lists no GPU; see dmesg")
        gpus = tuple(reading for reading, _ in present) + self._missing()
        return GpuSnapshot(
            OK,
            gpus=gpus,
            count=max(count, len(self._devices)),
            driver=self._driver,
            beat_s=FALLBACK_BEAT_S if by_rate else None,
        )

    def _missing(self) -> Tuple[GpuReading, ...]:
        return tuple(GpuReading(d.uuid, d.model, trouble=d.missing) for d in self._devices.values() if d.missing is not None)

    def _moment(self) -> Moment:
        now, wall = self._clock.boot_s(), self._clock.utc().timestamp()
        stepped = self._wall_minus_boot is not None and abs(wall - now - self._wall_minus_boot) > _CLOCK_STEP_S
        self._wall_minus_boot = wall - now
        return Moment(now, wall, stepped)
