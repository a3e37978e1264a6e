"""
NVML to per-GPU readings, through one long session.

Each call on each GPU fails alone: its figure is None and nothing else changes. Only
when the driver as a whole fails is the session closed and opened again, with a
growing pause and without a restart of the process. GPUs are known by UUID; their
index may change from boot to boot.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple, TypeVar

from agent import nvml, pci
from agent.clock import Clock
from agent.readings import FAILED, NO_GPU, NO_LIBRARY, OK, GpuReading, GpuSnapshot, Log, Sample

FIRST_RETRY_S, MOST_RETRY_S = 5.0, 300.0
FALLBACK_BEAT_S = 1.0  # without the driver's buffer its short window is only seen by looking often
_MOST_PID = 4_194_304  # Linux PID_MAX_LIMIT; above it the entry is garbage
_MOST_WATTS = 1e5
_INTEGRATED = re.compile("nvgpu|tegra|jetson", re.IGNORECASE)
_CLOCK_STEP_S = 1.0

_T = TypeVar("_T")

# What a driver call may raise: NVML's own error, and what ctypes and string decoding raise on garbage.
_FAILURES = (OSError, ValueError, TypeError, AttributeError, ArithmeticError, LookupError)


class _Failed(Exception):
    """A driver call failed; ``error`` is what it raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(str(error))


@dataclass
class _Device:
    """One GPU as the driver knows it now: its handle and where its sample buffer was last read (the driver's microseconds)."""

    index: int
    handle: Any
    uuid: str
    model: Optional[str]
    seen_us: Optional[int] = None
    missing: Optional[str] = None  # it was there once, and the driver no longer hands it out


class _Util(NamedTuple):
    samples: Tuple[Sample, ...]
    trouble: Optional[str]
    by_rate: bool  # the buffer had nothing, so the beat must be short
    dead: bool  # the call failed for a reason that may pass


def _as_is(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str) or not value:
        raise TypeError("not a text: %r" % (value,))
    return value


def _stamped(answer: Any) -> Tuple[int, List[Tuple[int, int]]]:
    """The value type, and (microseconds, percent) of each sample."""
    kind, items = answer
    return int(kind), [(int(item.timeStamp), int(item.sampleValue.uiVal)) for item in items]


def _pids(listed: Any) -> Dict[int, Any]:
    """Process id to memory in bytes (None: not said)."""
    return {int(entry.pid): entry.usedGpuMemory for entry in listed}


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
    ) -> None:
        self.doing = ""
        self._clock, self._nobodys, self._log, self._load, self._bus = clock, nobodys, log, load, bus
        self._api: Any = None
        self._open = False
        self._devices: Dict[str, _Device] = {}
        self._count: Optional[int] = None
        self._unopened = 0  # indices that the driver lists and will not hand out
        self._driver: Optional[str] = None
        self._last_failure = GpuSnapshot(FAILED)
        self._retry_at, self._retry_s = -math.inf, FIRST_RETRY_S
        self._wall_minus_boot: Optional[float] = None

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
        except _Failed as failed:
            self.close()
            return self._fail(now, self._without_driver(failed.error))
        if count != self._count or (self._troubled() and now >= self._retry_at):
            if count == self._count:
                self._back_off(now)
            self._find_devices(count)
        return self._read_all(now, count)

    def close(self) -> None:
        """End the session; harmless when there is none."""
        if self._open:
            self._open = False
            try:
                self._call("nvmlShutdown")
            except _Failed as failed:
                self._log.warning("driver session did not close", because=nvml.trouble(failed.error))

    def _connect(self) -> Optional[GpuSnapshot]:
        """Open the session. Returns what went wrong, or None."""
        try:
            if self._api is None:
                self._api = self._load()
                self._log.info("nvml module loaded", file=str(getattr(self._api, "__file__", "?")), foreign=nvml.foreign(self._api))
            self._call("nvmlInit")
        except nvml.WrongModule as error:
            return self._unreadable(FAILED, str(error))
        except _Failed as failed:
            return self._without_driver(failed.error)
        self._open = True
        self._count = None  # look for devices at once
        self._driver = self._optional_text("nvmlSystemGetDriverVersion")
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
        return self._unopened > 0 or any(d.missing is not None for d in self._devices.values())

    def _find_devices(self, count: int) -> None:
        """Match indices to UUIDs. A GPU that was there once and is not handed out now stays in the list, as missing."""
        found: Set[str] = set()
        self._unopened = 0
        for index in range(count):
            try:
                handle: Any = self._call("nvmlDeviceGetHandleByIndex", index, on=index)
                uuid = self._call("nvmlDeviceGetUUID", handle, on=index, to=_text)
            except _Failed as failed:
                self._unopened += 1
                self._log.warning("gpu has no handle", gpu=index, because=nvml.trouble(failed.error))
                continue
            found.add(uuid)
            old = self._devices.get(uuid)
            model = self._optional_text("nvmlDeviceGetName", handle, on=index) or (old.model if old else None)
            self._devices[uuid] = _Device(index, handle, uuid, model, old.seen_us if old else None)
        for uuid, device in self._devices.items():
            if uuid not in found:
                device.missing = "lost"
        if self._count is not None and count < self._count:
            self._log.warning("gpu count dropped", was=self._count, now=count)
        self._count = count

    # --- one beat ---

    def _read_all(self, now: float, count: int) -> GpuSnapshot:
        step = self._clock_step(now)
        results = [self._read_one(device, step) for device in self._devices.values()]
        present = [r for r in results if r is not None]
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

    def _clock_step(self, now: float) -> bool:
        """Whether the wall clock, by which the driver stamps its samples, was set since the last beat."""
        offset = self._clock.utc().timestamp() - now
        stepped = self._wall_minus_boot is not None and abs(offset - self._wall_minus_boot) > _CLOCK_STEP_S
        self._wall_minus_boot = offset
        return stepped

    def _read_one(self, device: _Device, stepped: bool) -> Optional[Tuple[GpuReading, _Util]]:
        if device.missing is not None:
            return None
        mig = self._mig(device)
        integrated = device.model is not None and _INTEGRATED.search(device.model) is not None
        if integrated:
            # These answer "success" with zeros, and with processes that do not exist.
            util = _Util((), "integrated GPU: utilisation is not measured", False, False)
        elif mig:
            util = _Util((), "MIG is on: utilisation is not measured", False, False)
        else:
            util = self._utilisation(device, stepped)
        used, total = self._memory(device)
        processes, pids, by_process = (None, (), None) if integrated else self._processes(device)
        reading = GpuReading(
            uuid=device.uuid,
            model=device.model,
            samples=util.samples,
            mem_used_bytes=by_process if used is None and total is None else used,
            mem_total_bytes=total,
            power_w=self._figure(device, "nvmlDeviceGetPowerUsage", 1000.0, _MOST_WATTS),
            energy_j=self._figure(device, "nvmlDeviceGetTotalEnergyConsumption", 1000.0, 1e15),
            processes=processes,
            pids=pids,
            trouble=util.trouble,
        )
        return reading, util

    def _utilisation(self, device: _Device, stepped: bool) -> _Util:
        """The driver's buffer since the last look; where it has nothing, the rate it gives right now."""
        wall = self._clock.utc().timestamp()
        if device.seen_us is None or stepped:
            device.seen_us = int((wall - FALLBACK_BEAT_S) * 1e6)
        try:
            samples = self._drain(device)
        except _Failed:
            samples = ()
        if samples:
            return _Util(samples, None, False, False)
        try:
            percent = self._call("nvmlDeviceGetUtilizationRates", device.handle, on=device.index, to=lambda rates: float(rates.gpu))
        except _Failed as failed:
            code = nvml.code_of(failed.error)
            passing = code is not None and code not in nvml.CANNOT and code != nvml.NO_PERMISSION
            return _Util((), nvml.trouble(failed.error), False, passing)
        if not 0.0 <= percent <= 100.0:
            return _Util((), "utilisation out of range", True, False)
        return _Util((Sample(self._clock.boot_s(), percent / 100.0),), None, True, False)

    def _drain(self, device: _Device) -> Tuple[Sample, ...]:
        since = device.seen_us or 0
        sort = self._api.NVML_GPU_UTILIZATION_SAMPLES
        kind, raw = self._call("nvmlDeviceGetSamples", device.handle, sort, since, on=device.index, to=_stamped)
        now, wall = self._clock.boot_s(), self._clock.utc().timestamp()
        if kind not in (1, 2, 3):  # NVML_VALUE_TYPE_UNSIGNED_INT, _LONG, _LONG_LONG: a percentage is a whole number
            return ()
        good: List[Sample] = []
        newest = since
        for stamp, percent in raw:
            age_s = wall - stamp / 1e6
            # Older than what we asked for, or from the future: left over in the buffer, not a sample of this beat.
            if stamp <= since or age_s < -0.5:
                continue
            newest = max(newest, stamp)
            if 0 <= percent <= 100:
                good.append(Sample(now - max(0.0, age_s), percent / 100.0))
        device.seen_us = newest
        return tuple(sorted(good))

    def _mig(self, device: _Device) -> bool:
        """Only an explicit "enabled" is MIG; cards without MIG answer "not supported"."""
        try:
            return bool(self._call("nvmlDeviceGetMigMode", device.handle, on=device.index, to=lambda modes: modes[0] == 1))
        except _Failed:
            return False

    def _memory(self, device: _Device) -> Tuple[Optional[int], Optional[int]]:
        """Bytes used beyond the driver's reserve, and in total. The old call counts the reserve as used, which errs towards "held"."""
        for version in (self._api.nvmlMemory_v2, None):
            try:
                used, total = self._call(
                    "nvmlDeviceGetMemoryInfo", device.handle, version, on=device.index, to=lambda m: (int(m.used), int(m.total))
                )
            except _Failed:
                continue
            if total > 0 and 0 <= used <= total < 2**60:
                return used, total
        return None, None

    def _processes(self, device: _Device) -> Tuple[Optional[int], Tuple[int, ...], Optional[int]]:
        """
        How many processes hold the GPU, which of them can be looked at, and their
        memory in bytes. An entry that makes no sense still counts: "somebody holds it"
        is the safe side. None when no list could be read to the end and none is known.
        """
        entries: Dict[int, Optional[int]] = {}
        complete = True
        for kind in ("Compute", "Graphics", "MPSCompute"):
            try:
                name = "nvmlDeviceGet%sRunningProcesses" % kind
                entries.update(self._call(name, device.handle, on=device.index, to=_pids))
            except _Failed as failed:
                complete = complete and kind != "Compute" and nvml.code_of(failed.error) in nvml.CANNOT
        work = {pid: mem for pid, mem in entries.items() if not (0 < pid <= _MOST_PID and self._nobodys(pid))}
        if not work and not complete:
            return None, (), None
        pids = tuple(sorted(pid for pid in work if 0 < pid <= _MOST_PID))
        sizes = [mem for mem in entries.values() if isinstance(mem, int) and 0 < mem < 2**60]
        return len(work), pids, sum(sizes) if sizes and len(sizes) == len(entries) else None

    def _figure(self, device: _Device, name: str, divisor: float, most: float) -> Optional[float]:
        try:
            value = self._call(name, device.handle, on=device.index, to=float) / divisor
        except _Failed:
            return None
        return value if math.isfinite(value) and 0.0 <= value <= most else None

    # --- calls ---

    def _optional_text(self, name: str, *arguments: Any, on: Optional[int] = None) -> Optional[str]:
        try:
            return self._call(name, *arguments, on=on, to=_text)
        except _Failed:
            return None

    def _call(self, name: str, *arguments: Any, on: Optional[int] = None, to: Callable[[Any], _T] = _as_is) -> _T:
        """
        One driver call and what ``to`` makes of its answer; an answer that it cannot
        make sense of has failed too. The name stands in ``doing`` meanwhile, so that a
        call that never returns can be named.
        """
        self.doing = name if on is None else "%s of GPU %d" % (name, on)
        try:
            return to(getattr(self._api, name)(*arguments))
        except self._api.NVMLError as error:
            raise _Failed(error) from error
        except _FAILURES as error:
            raise _Failed(error) from error
        finally:
            self.doing = ""
