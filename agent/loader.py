"""
Data-loader wait of the processes that hold GPUs: a first, plain figure.

A tree is a process that holds a GPU, with all its children. At each beat we note
whether the tree stands on its data path: a process of it is in uninterruptible sleep
(state D), or it read bytes from storage since the last beat. The share of beats in
which its GPUs stood low as well is the wait. Only these processes are looked at, in
/proc directly: walking all of /proc each beat would cost more than all the rest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from agent.readings import GpuReading, TreeReading
from agent.report import Loader

LOW_RATIO = 0.05
# Below this share of readable beats there is no figure: the rest could have been anything.
LEAST_KNOWN = 0.5
MOST_TREES = 64
_MOST_PROCESSES = 4096


class _Stat(NamedTuple):
    state: str
    cpu_ticks: int
    born: int  # ticks after boot; with the pid it names a process for good


@dataclass(frozen=True)
class _Seen:
    read_bytes: Optional[int]
    cpu_ticks: int


class ProcLoaders:
    """The real loader source, over /proc. Remembers the counters of the processes it saw at the last look, and only those."""

    def __init__(self, proc: Path = Path("/proc"), ticks_per_s: Optional[int] = None) -> None:
        self._proc = str(proc)
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._seen: Dict[Tuple[int, int], _Seen] = {}
        self._trees: Set[str] = set()

    def look(self, gpus: Sequence[GpuReading]) -> Optional[Tuple[TreeReading, ...]]:
        holders: Dict[int, Set[str]] = {}
        for gpu in gpus:
            for pid in gpu.pids:
                holders.setdefault(pid, set()).add(gpu.uuid)
        if not holders and any(gpu.processes is None for gpu in gpus):
            return None  # nobody seen, but a list was unreadable
        families = {pid: self._family(pid) for pid in holders}
        inner = {pid for top, family in families.items() for pid in family if pid != top and pid in holders}
        seen: Dict[Tuple[int, int], _Seen] = {}
        trees = []
        # A holder below another holder belongs to that one's tree.
        for top in sorted(set(holders) - inner):
            members = families[top]
            uuids = {uuid for pid in members for uuid in holders.get(pid, ())} | holders[top]
            trees.append(self._tree("pid-%d" % top, tuple(sorted(uuids)), members, seen))
        self._seen, self._trees = seen, {tree.id for tree in trees}
        return tuple(trees)

    def _tree(self, name: str, uuids: Tuple[str, ...], members: List[int], seen: Dict[Tuple[int, int], _Seen]) -> TreeReading:
        known = name in self._trees
        blocked: Optional[bool] = False
        reads: List[Optional[int]] = []
        ticks: List[int] = []
        for pid in members:
            stat = self._stat(pid)
            if stat is None:
                if pid == members[0]:
                    blocked = None  # the holder itself is hidden or gone: nothing is known of this tree
                continue
            if stat.state == "D":
                blocked = True
            key = (pid, stat.born)
            now = _Seen(self._read_bytes(pid), stat.cpu_ticks)
            seen[key] = now
            # A child born since the last look did all it has done since then.
            before = self._seen.get(key) or (_Seen(0, 0) if known else None)
            if before is not None:
                reads.append(_grown(before.read_bytes, now.read_bytes))
                ticks.append(max(0, now.cpu_ticks - before.cpu_ticks))
        if blocked is None or not ticks:
            return TreeReading(name, uuids, blocked=blocked, on_data_path=True if blocked else None)
        readable = [r for r in reads if r is not None]
        grew: Optional[bool] = True if any(r > 0 for r in readable) else (False if len(readable) == len(reads) else None)
        return TreeReading(
            name,
            uuids,
            blocked=blocked,
            on_data_path=True if blocked else grew,
            read_bytes=sum(readable) if len(readable) == len(reads) else None,
            cpu_s=sum(ticks) / self._ticks_per_s,
        )

    def _family(self, top: int) -> List[int]:
        """The process and all below it. Each thread has children of its own, so every thread's list is read."""
        found, todo = [top], [top]
        while todo and len(found) < _MOST_PROCESSES:
            pid = todo.pop()
            base = "%s/%d/task" % (self._proc, pid)
            try:
                threads = os.listdir(base)
            except OSError:
                continue
            for thread in threads:
                text = _read("%s/%s/children" % (base, thread))
                for child in (text or "").split():
                    if child.isdigit() and int(child) not in found:
                        found.append(int(child))
                        todo.append(int(child))
        return found

    def _stat(self, pid: int) -> Optional[_Stat]:
        text = _read("%s/%d/stat" % (self._proc, pid))
        if text is None or ")" not in text:
            return None
        # The name may hold blanks and brackets: the fields begin behind the last one. See proc_pid_stat(5).
        rest = text[text.rindex(")") + 1 :].split()
        try:
            return _Stat(rest[0], int(rest[11]) + int(rest[12]), int(rest[19]))
        except (IndexError, ValueError):
            return None

    def _read_bytes(self, pid: int) -> Optional[int]:
        """Bytes this process made storage deliver. None: not allowed to look (another user's process) or gone."""
        for line in (_read("%s/%d/io" % (self._proc, pid)) or "").splitlines():
            if line.startswith("read_bytes:"):
                value = line.split(":", 1)[1].strip()
                return int(value) if value.isdigit() else None
        return None


def _read(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return file.read(65536).decode("utf-8", "replace")
    except OSError:
        return None


def _grown(before: Optional[int], now: Optional[int]) -> Optional[int]:
    return None if before is None or now is None else max(0, now - before)


# --- over a window (pure) ---


@dataclass(frozen=True)
class TreeSpan:
    """
    One tree's beats folded so far. A beat is known when both halves are: whether the
    GPUs stood low and whether the tree was on its data path. ``read_bytes`` and
    ``cpu_s`` are sums; None once a part is missing.
    """

    beats: int = 0
    known: int = 0
    waited: int = 0
    seen_blocked: int = 0
    blocked: int = 0
    read_bytes: Optional[int] = 0
    cpu_s: Optional[float] = 0.0
    measured: int = 0

    def add(self, tree: TreeReading, low: Optional[bool]) -> TreeSpan:
        path = tree.on_data_path
        first = tree.cpu_s is None and tree.blocked is not None and self.measured == 0
        return TreeSpan(
            beats=self.beats + 1,
            known=self.known + (low is not None and path is not None),
            waited=self.waited + (low is True and path is True),
            seen_blocked=self.seen_blocked + (tree.blocked is not None),
            blocked=self.blocked + (tree.blocked is True),
            # The first sight of a tree has nothing to compare with; that is no hole in the sum.
            read_bytes=self.read_bytes if first else _sum(self.read_bytes, tree.read_bytes),
            cpu_s=self.cpu_s if first else _sum_s(self.cpu_s, tree.cpu_s),
            measured=self.measured + (tree.cpu_s is not None),
        )

    def close(self, name: str, window_s: float) -> Loader:
        measured = self.measured > 0
        return Loader(
            id=name,
            wait_ratio=self.waited / self.known if self.known and self.known >= LEAST_KNOWN * self.beats else None,
            blocked_ratio=self.blocked / self.seen_blocked if self.seen_blocked else None,
            read_bytes=self.read_bytes if measured else None,
            cpu_cores=self.cpu_s / window_s if measured and self.cpu_s is not None and window_s > 0 else None,
        )


def stood_low(uuids: Sequence[str], gpus: Sequence[GpuReading]) -> Optional[bool]:
    """Whether all these GPUs stood low in every sample of one beat. One that did not is enough for False; else one unknown for None."""
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    unknown = False
    for uuid in uuids:
        gpu = by_uuid.get(uuid)
        if gpu is None or not gpu.samples:
            unknown = True
        elif any(sample.ratio >= LOW_RATIO for sample in gpu.samples):
            return False
    return None if unknown or not uuids else True


def _sum(a: Optional[int], b: Optional[int]) -> Optional[int]:
    return None if a is None or b is None else a + b


def _sum_s(a: Optional[float], b: Optional[float]) -> Optional[float]:
    return None if a is None or b is None else a + b
