"""
The host's counters out of /proc: CPU, memory, disk, network, and which orchestrators live.

Only counters of the kernel are read. A mount is never looked at: asking a dead network
mount for its size blocks for hours. Each figure fails alone and is then None.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Callable, Dict, List, Optional, Set, Tuple, TypeVar

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

_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own
_ROUNDS, _LEAST_NAMES = 16, 16  # of the names known before, a sixteenth is read anew each time, and 16 at least

_T = TypeVar("_T")


def _or_none(read: Callable[[], _T]) -> Optional[_T]:
    try:
        return read()
    except (OSError, ValueError, LookupError):
        return None


class ProcHost:
    """The real host source. ``proc`` and ``sys`` are the roots to read below."""

    def __init__(self, proc: Path = PROC, sys: Path = SYS) -> None:
        self._proc, self._sys = proc, sys
        self._orchestrators = Orchestrators(proc)
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")

    def read(self) -> HostReading:
        stat = _or_none(lambda: _text(self._proc / "stat"))
        cpu = _or_none(lambda: _cpu_seconds(stat or "", self._ticks_per_s))
        forks = _or_none(lambda: _forks(stat or ""))
        return HostReading(
            cpu_busy_s=cpu[0] if cpu is not None else None,
            cpu_total_s=cpu[1] if cpu is not None else None,
            cpus=os.cpu_count(),
            mem_used_ratio=_or_none(lambda: _memory_ratio(_text(self._proc / "meminfo"))),
            disk_bytes=_or_none(self._disk_bytes),
            net_bytes=_or_none(self._net_bytes),
            orchestrators=_or_none(lambda: self._orchestrators.look(forks)),
        )

    def _disk_bytes(self) -> Optional[int]:
        """Read and written since boot on whole physical disks; partitions would count the same bytes again."""
        sectors: Dict[str, int] = {}
        for line in _text(self._proc / "diskstats").splitlines():
            words = line.split()
            sectors[words[2]] = int(words[5]) + int(words[9])
        block = self._sys / "block"
        whole = set(os.listdir(block)) if block.is_dir() else set(sectors)
        disks = [count for name, count in sectors.items() if name in whole and not _VIRTUAL_DISK.match(name)]
        return sum(disks) * _SECTOR_BYTES if disks else None

    def _net_bytes(self) -> Optional[int]:
        """
        Received and sent since boot by interfaces with hardware behind them. Bridges and
        container pairs carry the same bytes again, and take their counters with them
        when they go. A machine with none such (a container) counts all but loopback.
        """
        outside: Dict[str, int] = {}
        for line in _text(self._proc / "net" / "dev").splitlines()[2:]:
            name, _, rest = line.partition(":")
            words = rest.split()
            if name.strip() != "lo":
                outside[name.strip()] = int(words[0]) + int(words[8])
        hardware = {name: count for name, count in outside.items() if os.path.exists("%s/class/net/%s/device" % (self._sys, name))}
        chosen = hardware or outside
        return sum(chosen.values()) if chosen else None


def _text(path: Path) -> str:
    """All of a file of the kernel's, by the bare calls, which cost a third of a file object's."""
    file = os.open(str(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(file, 65536)]
        while parts[-1]:
            parts.append(os.read(file, 65536))
        return b"".join(parts).decode("utf-8", "replace")
    finally:
        os.close(file)


def _cpu_seconds(stat: str, ticks_per_s: int) -> Tuple[float, float]:
    """(busy, total) CPU seconds of all cores since boot. Waiting for a disk is not busy; guest time is part of user time."""
    words = stat.split("\n", 1)[0].split()
    if words[:1] != ["cpu"] or len(words) < 5:
        raise ValueError("not /proc/stat")
    spent = [int(word) for word in words[1:9]]  # user nice system idle iowait irq softirq steal
    total = sum(spent)
    waiting = spent[3] + (spent[4] if len(spent) > 4 else 0)
    return (total - waiting) / ticks_per_s, total / ticks_per_s


def _forks(stat: str) -> int:
    """Processes and threads made since boot."""
    begin = stat.index("\nprocesses ") + len("\nprocesses ")
    return int(stat[begin : stat.index("\n", begin)])


def _memory_ratio(meminfo: str) -> Optional[float]:
    kib = {}
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            kib[name] = int(rest.split()[0])
    total = kib["MemTotal"]
    return (total - kib["MemAvailable"]) / total if total > 0 else None


class Orchestrators:
    """
    Which orchestrators live, without reading the name of every process each time: a host
    may have thousands.

    Read are the names of processes not seen before, once more at the look after that
    (one that was just forked has not started its program yet), those that were an
    orchestrator, and a part of the rest in turn, so that an old process that becomes
    another program is found within sixteen looks. When so many processes were made
    since the last look that a number may stand for another process, all are read.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._names: Dict[int, Optional[str]] = {}
        self._settled: Set[int] = set()  # read at two looks or more
        self._forks: Optional[int] = None
        self._turn = 0

    def look(self, forks: Optional[int]) -> Optional[Tuple[str, ...]]:
        """
        Their names, sorted; () is "looked, none". None when the process list is hidden
        from us (hidepid, another pid namespace's leftovers): then none could be seen.
        ``forks``: the kernel's count of processes made; without it all names are read.
        """
        if name_of(1, self._proc) is None:
            return None
        pids = [int(entry) for entry in os.listdir(self._proc) if entry.isdigit()]
        if self._may_have_wrapped(forks, len(pids)):
            self._names, self._settled = {}, set()
        again = self._in_turn(pids)
        names: Dict[int, Optional[str]] = {}
        settled: Set[int] = set()
        for pid in pids:
            before = self._names.get(pid)
            if pid in self._settled and pid not in again and before not in ORCHESTRATORS:
                names[pid] = before
                settled.add(pid)
                continue
            names[pid] = name_of(pid, self._proc)
            if pid in self._names:
                settled.add(pid)
        self._names, self._settled, self._forks = names, settled, forks
        return tuple(sorted({ORCHESTRATORS[name] for name in names.values() if name in ORCHESTRATORS}))

    def _in_turn(self, pids: List[int]) -> Set[int]:
        if not pids:
            return set()
        count = max(_LEAST_NAMES, -(-len(pids) // _ROUNDS))
        begin = self._turn % len(pids)
        self._turn = begin + count
        return set((pids + pids)[begin : begin + min(count, len(pids))])

    def _may_have_wrapped(self, forks: Optional[int], living: int) -> bool:
        if forks is None or self._forks is None or forks < self._forks:
            return True
        most = _or_none(lambda: int(_text(self._proc / "sys" / "kernel" / "pid_max")))
        return most is None or forks - self._forks >= most // 2 - living


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
    short: List[str] = [name[:15] for name in names]
    return lambda pid: name_of(pid, proc) in short
