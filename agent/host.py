"""
The host's counters through psutil: CPU, memory, disk, network, and which orchestrators live.

Only counters of the kernel are read. A mount is never looked at: asking a dead network
mount for its size blocks for hours. Each figure fails alone and is then None.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Callable, List, Optional, Tuple, TypeVar

import psutil

from agent.readings import HostReading

PROC = Path("/proc")
SYS = Path("/sys")

# The kernel's name of a process (15 characters at most) -> what it means that it lives.
ORCHESTRATORS = {
    "slurmd": "slurmd",
    "slurmstepd": "slurmd",
    "kubelet": "kubelet",
    "k3s": "kubelet",
    "k3s-agent": "kubelet",
    "k3s-server": "kubelet",
    "kubelite": "kubelet",
    "raylet": "raylet",
    "nomad": "nomad",
}
# Loopback, RAM, optical and stacked devices: what goes through those below is counted there, once.
_VIRTUAL_DISK = re.compile(r"^(loop|ram|zram|sr|fd|dm-|md|nbd|drbd)")

_T = TypeVar("_T")


def _or_none(read: Callable[[], _T]) -> Optional[_T]:
    try:
        return read()
    except (OSError, psutil.Error, ValueError, RuntimeError, AttributeError, NotImplementedError):
        return None


class PsutilHost:
    """The real host source. ``proc`` and ``sys`` are roots to read names below; psutil itself always reads this machine."""

    def __init__(self, proc: Path = PROC, sys: Path = SYS) -> None:
        self._proc, self._sys = proc, sys

    def read(self) -> HostReading:
        cpu = _or_none(_cpu_seconds)
        return HostReading(
            cpu_busy_s=cpu[0] if cpu is not None else None,
            cpu_total_s=cpu[1] if cpu is not None else None,
            cpus=_or_none(lambda: psutil.cpu_count(logical=True)),
            mem_used_ratio=_or_none(_memory_ratio),
            disk_bytes=_or_none(self._disk_bytes),
            net_bytes=_or_none(self._net_bytes),
            orchestrators=_or_none(lambda: orchestrators(self._proc)),
        )

    def _disk_bytes(self) -> Optional[int]:
        """Read and written since boot on whole physical disks; partitions would count the same bytes again."""
        counters = psutil.disk_io_counters(perdisk=True)
        if not counters:
            return None
        block = self._sys / "block"
        whole = {entry.name for entry in block.iterdir()} if block.is_dir() else set(counters)
        disks = [c for name, c in counters.items() if name in whole and not _VIRTUAL_DISK.match(name)]
        return sum(int(c.read_bytes) + int(c.write_bytes) for c in disks) if disks else None

    def _net_bytes(self) -> Optional[int]:
        """
        Received and sent since boot by interfaces with hardware behind them. Bridges and
        container pairs carry the same bytes again, and take their counters with them
        when they go. A machine with none such (a container) counts all but loopback.
        """
        counters = psutil.net_io_counters(pernic=True)
        outside = {name: c for name, c in counters.items() if name != "lo" and not name.startswith("lo0")}
        hardware = {name: c for name, c in outside.items() if (self._sys / "class" / "net" / name / "device").exists()}
        chosen = hardware or outside
        return sum(int(c.bytes_recv) + int(c.bytes_sent) for c in chosen.values()) if chosen else None


def _cpu_seconds() -> Tuple[float, float]:
    """(busy, total) CPU seconds of all cores since boot. Waiting for a disk is not busy; guest time is part of user time."""
    times = psutil.cpu_times()
    total = float(sum(times)) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - float(times.idle) - getattr(times, "iowait", 0.0), total


def _memory_ratio() -> Optional[float]:
    memory = psutil.virtual_memory()
    return (memory.total - memory.available) / memory.total if memory.total > 0 else None


def orchestrators(proc: Path = PROC) -> Optional[Tuple[str, ...]]:
    """
    Names of the orchestrators that live on this host, sorted; () is "looked, none".

    None when the process list is hidden from us (hidepid, another pid namespace's
    leftovers): then none could be seen. All names are read anew each time: a process
    changes its name when it starts its program, and a remembered pid may be another's.
    One pass over 2,000 processes costs some 20 ms, once per window.
    """
    if name_of(1, proc) is None:
        return None
    found = set()
    for entry in os.listdir(proc):
        if entry.isdigit():
            name = name_of(int(entry), proc)
            if name is not None and name in ORCHESTRATORS:
                found.add(ORCHESTRATORS[name])
    return tuple(sorted(found))


def name_of(pid: int, proc: Path = PROC) -> Optional[str]:
    """The kernel's name of a process, at most 15 characters. None: gone or hidden."""
    try:
        with open(os.path.join(proc, str(pid), "comm"), "rb") as file:
            return file.read(64).decode("utf-8", "replace").rstrip("\n")
    except OSError:
        return None


def nobodys_work(names: Tuple[str, ...], proc: Path = PROC) -> Callable[[int], bool]:
    """A test for processes that hold a GPU without doing anybody's work. One that cannot be seen does somebody's work."""
    short: List[str] = [name[:15] for name in names]
    return lambda pid: name_of(pid, proc) in short
