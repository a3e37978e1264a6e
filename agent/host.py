"""
The host's counters through psutil: CPU, memory, disk, network; and which orchestrators live.

Only counters of the kernel are read, never through psutil's functions that look at mounts:
asking a dead network mount for its size blocks for hours. Each figure fails alone and is
then None. Names of processes are read by hand: psutil makes an object and reads the
status of each of thousands, where a sixteenth of their names will do (`Orchestrators`).
psutil's guard against counters that wrap (``nowrap``) is off: it keeps a copy of all
counters for good, and a counter that ran backwards has no rate here anyway.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Callable, Dict, List, Optional, Set, Tuple, TypeVar

import psutil

from agent.listing import Listing
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

# What psutil raises where a file of the kernel's is missing, hidden or not as it knows it.
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AssertionError, AttributeError, NotImplementedError, psutil.Error)
_CROWDED = 500  # processes
_ROUNDS, _LEAST_NAMES = 16, 16  # of the names known before, a sixteenth is read anew each time, and 16 at least

_T = TypeVar("_T")


def _or_none(read: Callable[[], _T]) -> Optional[_T]:
    try:
        return read()
    except _UNREADABLE:
        return None


class ProcHost:
    """The real host source. Counters are those below `psutil.PROCFS_PATH`; ``proc`` and ``sys`` are the roots of what is read by hand."""

    def __init__(self, proc: Path = PROC, sys: Path = SYS) -> None:
        self._proc, self._sys = str(proc), str(sys)
        self._orchestrators = Orchestrators(proc)

    def read(self) -> HostReading:
        cpu = _or_none(_cpu_seconds)
        forks = _or_none(lambda: _forks(_text(self._proc + "/stat")))
        return HostReading(
            cpu_busy_s=cpu[0] if cpu is not None else None,
            cpu_total_s=cpu[1] if cpu is not None else None,
            cpus=_or_none(psutil.cpu_count),
            mem_used_ratio=_or_none(_memory_ratio),
            disk_bytes=_or_none(self._disk_bytes),
            net_bytes=_or_none(self._net_bytes),
            orchestrators=_or_none(lambda: self._orchestrators.look(forks)),
        )

    def _disk_bytes(self) -> Optional[int]:
        """Read and written since boot on whole physical disks; partitions would count the same bytes again."""
        disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        block = self._sys + "/block"
        whole = set(os.listdir(block)) if os.path.isdir(block) else set(disks)
        chosen = [disk for name, disk in disks.items() if name in whole and not _VIRTUAL_DISK.match(name)]
        return sum(disk.read_bytes + disk.write_bytes for disk in chosen) if chosen else None

    def _net_bytes(self) -> Optional[int]:
        """
        Received and sent since boot by interfaces with hardware behind them. Bridges and
        container pairs carry the same bytes again, and take their counters with them
        when they go. A machine with none such (a container) counts all but loopback.
        """
        interfaces = psutil.net_io_counters(pernic=True, nowrap=False) or {}
        outside = {name: nic.bytes_recv + nic.bytes_sent for name, nic in interfaces.items() if name != "lo"}
        hardware = {name: count for name, count in outside.items() if os.path.exists("%s/class/net/%s/device" % (self._sys, name))}
        chosen = hardware or outside
        return sum(chosen.values()) if chosen else None


def _text(path: str) -> str:
    """All of a file of the kernel's, by the bare calls, which cost a third of a file object's."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(file, 65536)]
        while parts[-1]:
            parts.append(os.read(file, 65536))
        return b"".join(parts).decode("utf-8", "replace")
    finally:
        os.close(file)


def _cpu_seconds() -> Tuple[float, float]:
    """(busy, total) CPU seconds of all cores since boot. Waiting for a disk is not busy; guest time is part of user time."""
    times = psutil.cpu_times()
    waiting: float = times.idle + times.iowait
    busy: float = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    return busy, busy + waiting


def _forks(stat: str) -> int:
    """Processes and threads made since boot."""
    begin = stat.index("\nprocesses ") + len("\nprocesses ")
    return int(stat[begin : stat.index("\n", begin)])


def _memory_ratio() -> Optional[float]:
    memory = psutil.virtual_memory()
    return (memory.total - memory.available) / memory.total if memory.total > 0 else None


class Orchestrators:
    """
    Which orchestrators live, without reading the name of every process each time: a host
    may have thousands.

    Read are the names of processes not seen before, once more at the look after that
    (one that was just forked has not started its program yet), those that were an
    orchestrator, and a part of the rest in turn, so that an old process that becomes
    another program is found within sixteen looks. When so many processes were made
    since the last look that a number may stand for another process, all are read.
    Where there are more than 500, and all have to be listed each time (`Listing`), they
    are at every second look.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._listing = Listing(str(proc))
        self._once: Set[int] = set()  # that came at the last look
        self._living: Dict[int, str] = {}  # those that were an orchestrator at the last look, and which
        self._many = 0  # as last listed
        self._forks: Optional[int] = None
        self._turn = self._looks = 0

    def look(self, forks: Optional[int]) -> Optional[Tuple[str, ...]]:
        """
        Their names, sorted; () is "looked, none". None when the process list is hidden
        from us (hidepid, another pid namespace's leftovers): then none could be seen.
        ``forks``: the kernel's count of processes made; without it all names are read.
        """
        if name_of(1, self._proc) is None:
            return None
        anew = self._may_have_wrapped(forks)
        self._looks += 1
        if anew:
            self._listing.forget()
            self._once, self._living = set(), {}
        listed = self._listing.look(sparing=self._many >= _CROWDED and self._looks % 2 == 0)
        if listed is None:
            return None
        pids, came = listed
        living: Dict[int, str] = {}
        for pid in came.union(self._once, self._in_turn(pids), self._living):
            name = name_of(pid, self._proc)
            if name in ORCHESTRATORS:
                living[pid] = ORCHESTRATORS[name]
        self._once, self._living, self._forks, self._many = came, living, forks, len(pids)
        return tuple(sorted(set(living.values())))

    def _in_turn(self, pids: List[int]) -> List[int]:
        if not pids:
            return []
        count = min(len(pids), max(_LEAST_NAMES, -(-len(pids) // _ROUNDS)))
        begin = self._turn % len(pids)
        self._turn = begin + count
        return pids[begin : begin + count] + pids[: max(0, begin + count - len(pids))]

    def _may_have_wrapped(self, forks: Optional[int]) -> bool:
        if forks is None or self._forks is None or forks < self._forks:
            return True
        most = _or_none(lambda: int(_text("%s/sys/kernel/pid_max" % self._proc)))
        return most is None or forks - self._forks >= most // 2 - self._many


def orchestrators(proc: Path = PROC) -> Optional[Tuple[str, ...]]:
    """The names of the orchestrators that live, every process looked at; see `Orchestrators.look`."""
    return Orchestrators(proc).look(None)


def name_of(pid: int, proc: Path = PROC) -> Optional[str]:
    """The kernel's name of a process, at most 15 characters. None: gone or hidden."""
    try:
        file = os.open("%s/%d/comm" % (proc, pid), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(file, 64).decode("utf-8", "replace").rstrip("\n")
    except OSError:
        return None
    finally:
        os.close(file)


def nobodys_work(names: Tuple[str, ...], proc: Path = PROC) -> Callable[[int], bool]:
    """A test for processes that hold a GPU without doing anybody's work. One that cannot be seen does somebody's work."""
    nobodys = nobodys_name(names)

    def does_nobodys(pid: int) -> bool:
        name = name_of(pid, proc)
        return name is not None and nobodys(name)

    return does_nobodys


def nobodys_name(names: Tuple[str, ...]) -> Callable[[str], bool]:
    """The same test for a name as the kernel has it, of 15 characters at most."""
    return frozenset(name[:15] for name in names).__contains__
