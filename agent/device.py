"""
One GPU at one beat: utilisation, memory, processes, slices, power, energy. Each fails alone.

Utilisation and the compute processes are read on every beat, since work shows in them;
mode, memory, power, energy and the rarer process lists on every third beat, since they
are said once per window.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from agent import nvml
from agent.calls import Calls, Failed
from agent.loader import LOW_RATIO
from agent.readings import GpuReading, Sample
from agent.report import Slice
from agent.utilisation import Moment, Util, rate, utilisation

SLOW_EVERY = 3  # beats between two readings of what is said once per window
ASK_AGAIN_EVERY = 4  # such readings, for whether a process is nobody's work
# With less than this an instance of a MIG GPU holds no CUDA context; an empty one shows some 20 MiB of its own.
EMPTY_BYTES = 128 << 20
_MOST_PID = 4_194_304  # Linux PID_MAX_LIMIT; above it the entry is garbage
_MOST_BYTES = 2**60
_MOST_WATTS, _MOST_JOULES = 1e5, 1e15
_MOST_SLICES = 16
_INTEGRATED = re.compile("nvgpu|tegra|jetson", re.IGNORECASE)

MIG_BLIND = "MIG is on: utilisation is not measured"
INTEGRATED_BLIND = "integrated GPU: utilisation is not measured"
MAYBE_MIG_BLIND = "utilisation 0 not believed: whether MIG is on cannot be read"


class _Listed(NamedTuple):
    """Processes by id with their memory in bytes (None: not said). ``complete``: every list that exists could be read."""

    entries: Mapping[int, Optional[int]]
    complete: bool


class _Processes(NamedTuple):
    """``number`` of those that do somebody's work; ``pids`` those of them that can be looked at; ``sum_bytes`` of all (None: not all say)."""

    number: Optional[int] = None
    pids: Mapping[int, Optional[int]] = {}
    sum_bytes: Optional[int] = None


class _Slow(NamedTuple):
    """``beats``: how often it has been used since it was read. ``mig`` None: it may be on."""

    beats: int
    at_s: float
    mig: Optional[bool]
    memory: Tuple[Optional[int], Optional[int]]
    power_w: Optional[float]
    energy_j: Optional[float]
    others: _Listed
    slices: Optional[Tuple[Slice, ...]]
    in_slices: _Listed


@dataclass
class Device:
    """One GPU as the driver knows it now: its handle and where its sample buffer was last read (the driver's microseconds)."""

    index: int
    handle: Any
    uuid: str
    model: Optional[str]
    seen_us: Optional[int] = None
    missing: Optional[str] = None  # it was there once, and the driver no longer hands it out
    slow: Optional[_Slow] = None
    mig: Optional[bool] = None  # as last answered
    reused: bool = False  # the list of processes, at the last beat
    readings: int = 0  # of what is read on every third beat
    last: Optional[Tuple[_Listed, _Listed, _Listed, _Processes]] = None  # the process lists, and what was made of them
    nobodys: Dict[int, bool] = field(default_factory=dict)  # what is known of the processes on it


def _pids(listed: Any) -> Dict[int, Any]:
    return {int(entry.pid): entry.usedGpuMemory for entry in listed}


def _used_and_total(memory: Any) -> Tuple[int, int]:
    return int(memory.used), int(memory.total)


class DeviceReader:
    """Reads GPUs through one session. ``nobodys(pid)`` tells processes that are nobody's work, and does not raise."""

    def __init__(self, calls: Calls, nobodys: Callable[[int], bool]) -> None:
        self._calls, self._nobodys = calls, nobodys

    def read(self, device: Device, moment: Moment, integrated: bool) -> Tuple[GpuReading, Util]:
        """``moment``: when this beat began. ``integrated``: this machine's GPUs share its memory and chip."""
        integrated = integrated or (device.model is not None and _INTEGRATED.search(device.model) is not None)
        slow = device.slow
        if slow is None or slow.beats + 1 >= SLOW_EVERY:
            slow = self._slow(device, moment, integrated)
        else:
            slow = slow._replace(beats=slow.beats + 1)
        device.slow = slow
        used, total = slow.memory
        if integrated:
            # These answer "success" with zeros, and with processes that do not exist.
            util, processes = Util((), INTEGRATED_BLIND), _Processes()
        elif slow.mig:
            processes = self._processes(device, slow, total)
            util = self._on_slices(slow, processes, moment)
        else:
            util = self._measured(device, slow, moment)
            processes = self._processes(device, slow, total, computes=any(s.ratio >= LOW_RATIO for s in util.samples))
            if not util.samples:
                device.slow = None  # MIG may have been switched on; and a GPU in trouble is looked at as a whole
        reading = GpuReading(
            uuid=device.uuid,
            model=device.model,
            samples=util.samples,
            mem_used_bytes=processes.sum_bytes if used is None and total is None else used,
            mem_total_bytes=total,
            power_w=slow.power_w,
            energy_j=slow.energy_j,
            energy_at_s=slow.at_s if slow.energy_j is not None else None,
            processes=processes.number,
            pids=tuple(processes.pids),
            pid_bytes=processes.pids,
            trouble=util.trouble,
            slices=slow.slices,
        )
        return reading, util

    def _measured(self, device: Device, slow: _Slow, moment: Moment) -> Util:
        """
        Utilisation as the driver tells it. Where MIG may be on, a zero may stand for "not measured" and is none; and now
        and then a zero of the sample buffer is held against the rate of now, for one of the two may have stopped.
        """
        util = utilisation(self._calls, device, moment)
        if not util.samples or any(sample.ratio > 0.0 for sample in util.samples):
            return util
        if slow.mig is None:
            return Util((), MAYBE_MIG_BLIND, by_rate=util.by_rate)
        if slow.beats > 0 or util.by_rate:
            return util
        now = rate(self._calls, device, moment)
        return util._replace(samples=(*util.samples, *now.samples)) if any(s.ratio > 0.0 for s in now.samples) else util

    def _slow(self, device: Device, moment: Moment, integrated: bool) -> _Slow:
        device.readings += 1
        if device.readings % ASK_AGAIN_EVERY == 0:
            device.nobodys, device.last = {}, None  # a process may since have become another program
        nothing = _Listed({}, True)
        if integrated:  # what it answers may be zeros that mean nothing
            return _Slow(0, moment.boot_s, False, (None, None), None, None, nothing, None, nothing)
        mig = self._mig(device)
        slices, in_slices = self._slices(device) if mig else (None, nothing)
        return _Slow(
            0,
            moment.boot_s,
            mig,
            self._memory(device.handle, device.index),
            self._figure(device, "nvmlDeviceGetPowerUsage", 1000.0, _MOST_WATTS),
            self._figure(device, "nvmlDeviceGetTotalEnergyConsumption", 1000.0, _MOST_JOULES),
            self._listed(device.handle, device.index, "Graphics", "MPSCompute"),
            slices,
            in_slices,
        )

    # --- MIG ---

    def _mig(self, device: Device) -> Optional[bool]:
        """
        Only an explicit "enabled" is MIG; cards without MIG answer "not supported". Any other failure: as last answered,
        but that it was off does not say that it still is.
        """
        try:
            device.mig = bool(self._calls("nvmlDeviceGetMigMode", device.handle, on=device.index, to=lambda modes: modes[0] == 1))
        except Failed as failed:
            if failed.code in nvml.CANNOT:
                device.mig = False
            else:
                return device.mig or None
        return device.mig

    def _on_slices(self, slow: _Slow, processes: _Processes, moment: Moment) -> Util:
        """
        No figure, unless nothing can be running: every instance and its processes could
        be listed, there is no process, and no memory is taken that a process would need.
        Without instances no kernel can run at all. That zero is known, not missing.
        """
        held = [(one.processes, one.mem_used_bytes) for one in slow.slices or ()] + [(processes.number, slow.memory[0])]
        room = EMPTY_BYTES * max(1, len(held) - 1)
        empty = slow.slices is not None and all(
            count == 0 and used is not None and used < (EMPTY_BYTES if i < len(held) - 1 else room) for i, (count, used) in enumerate(held)
        )
        return Util((Sample(moment.boot_s, 0.0),), by_rate=True) if empty else Util((), MIG_BLIND)

    def _slices(self, device: Device) -> Tuple[Optional[Tuple[Slice, ...]], _Listed]:
        """The instances, and the processes on all of them. None: they could not all be listed."""
        found: List[Slice] = []
        entries: Dict[int, Optional[int]] = {}
        complete = True
        try:
            most = self._calls("nvmlDeviceGetMaxMigDeviceCount", device.handle, on=device.index, to=int)
            if not 0 < most <= _MOST_SLICES:  # MIG without room for an instance makes no sense; with too much not all are seen
                return None, _Listed(entries, False)
            for number in range(most):
                try:
                    handle: Any = self._calls("nvmlDeviceGetMigDeviceHandleByIndex", device.handle, number, on=device.index)
                except Failed as failed:
                    if failed.code == nvml.NOT_FOUND:
                        continue  # the place is free
                    raise
                uuid = self._calls.text("nvmlDeviceGetUUID", handle, on=device.index) or "MIG %d of %s" % (number, device.uuid)
                listed = self._listed(handle, device.index, "Compute")
                used, total = self._memory(handle, device.index)
                work = [pid for pid in listed.entries if not self._is_nobodys(device, pid)]
                found.append(Slice(uuid, used, total, len(work) if work or listed.complete else None))
                entries.update(listed.entries)
                complete = complete and listed.complete
        except Failed:
            return None, _Listed(entries, False)
        return tuple(found), _Listed(entries, complete)

    # --- memory, processes, counters ---

    def _memory(self, handle: Any, index: int) -> Tuple[Optional[int], Optional[int]]:
        """Bytes used beyond the driver's reserve, and in total. The old call counts the reserve as used, which errs towards "held"."""
        for version in (self._calls.api.nvmlMemory_v2, None):
            try:
                used, total = self._calls("nvmlDeviceGetMemoryInfo", handle, version, on=index, to=_used_and_total)
            except Failed:
                continue
            if total > 0 and 0 <= used <= total < _MOST_BYTES:
                return used, total
        return None, None

    def _listed(self, handle: Any, index: int, *kinds: str) -> _Listed:
        entries: Dict[int, Optional[int]] = {}
        complete = True
        for kind in kinds:
            try:
                entries.update(self._calls("nvmlDeviceGet%sRunningProcesses" % kind, handle, on=index, to=_pids))
            except Failed as failed:
                complete = complete and kind != "Compute" and failed.code in nvml.CANNOT
        return _Listed(entries, complete)

    def _processes(self, device: Device, slow: _Slow, total: Optional[int], computes: bool = False) -> _Processes:
        """
        An entry that makes no sense still counts: "somebody holds it" is the safe side.
        The count is None when no list could be read to the end and none is known. On a GPU
        that ``computes`` nobody's end is to be noticed, and the list of the beat before will do.
        """
        last = device.last
        if computes and last is not None and not device.reused:
            device.reused = True
            return last[3]
        device.reused = False
        compute = self._listed(device.handle, device.index, "Compute")
        if last is not None and last[:3] == (compute, slow.others, slow.in_slices):
            return last[3]  # the same as a moment ago
        found = self._sorted_out(device, slow, total, compute)
        device.last = (compute, slow.others, slow.in_slices, found)
        return found

    def _sorted_out(self, device: Device, slow: _Slow, total: Optional[int], compute: _Listed) -> _Processes:
        entries = {**slow.others.entries, **slow.in_slices.entries, **compute.entries}
        complete = compute.complete and slow.others.complete and slow.in_slices.complete
        work = [pid for pid in sorted(entries) if not self._is_nobodys(device, pid)]
        device.nobodys = {pid: device.nobodys[pid] for pid in entries if pid in device.nobodys}
        if not work and not complete:
            return _Processes()
        most = _MOST_BYTES if total is None else total
        sizes = {pid: size for pid, size in entries.items() if isinstance(size, int) and 0 <= size <= most}
        # One impossible entry shows that binding and driver disagree on the structure: then no size of that list is one.
        sane = all(0 < pid <= _MOST_PID for pid in entries) and all(pid in sizes or entries[pid] is None for pid in entries)
        pids = {pid: sizes.get(pid) if sane else None for pid in work if 0 < pid <= _MOST_PID}
        whole = sane and bool(sizes) and len(sizes) == len(entries) and sum(sizes.values()) > 0
        return _Processes(len(work), pids, sum(sizes.values()) if whole else None)

    def _is_nobodys(self, device: Device, pid: int) -> bool:
        """Asked once while the process stays on the GPU, and again now and then: it may have become another program."""
        if not 0 < pid <= _MOST_PID:
            return False
        known = device.nobodys.get(pid)
        if known is None:
            known = device.nobodys[pid] = self._nobodys(pid)
        return known

    def _figure(self, device: Device, name: str, divisor: float, most: float) -> Optional[float]:
        try:
            value = self._calls(name, device.handle, on=device.index, to=float) / divisor
        except Failed:
            return None
        # A GPU that answers draws some power: a zero is a figure that is not kept.
        return value if math.isfinite(value) and 0.0 < value <= most else None
