"""
Data-loader wait of the processes that hold GPUs: a first, plain figure.

A tree is a process that holds a GPU, with all its children. At each beat we note
whether the tree stands on its data path: a process of it is in uninterruptible sleep
(state D), or it read bytes from storage since the last beat. The share of beats in
which its GPUs stood low as well is the wait. Only these processes are looked at, in
/proc directly: walking all of /proc each beat would cost more than all the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from agent.families import Families, Family
from agent.procs import PROC, Procs
from agent.readings import GpuReading, TreeReading
from agent.report import Loader, Value

LOW_RATIO = 0.05
# Below this share of readable beats there is no figure: the rest could have been anything.
LEAST_KNOWN = 0.5
MOST_TREES = 64
FAMILY_EVERY = 3  # looks
LOOK_EVERY = 3  # at a tree whose GPUs work
UNSEEN = "unseen"  # stands for those of whom the driver says that they are there, and not who


@dataclass(frozen=True, eq=False, repr=False)
class _Seen(Value):
    born: int
    read_bytes: Optional[int]
    cpu_ticks: int


class ProcLoaders:
    """The real loader source, over /proc. Remembers the counters of the processes it saw at the last look, and only those."""

    def __init__(self, proc: Path = PROC, ticks_per_s: Optional[int] = None) -> None:
        self._procs = Procs(proc, ticks_per_s=ticks_per_s)
        self._births: Dict[int, Optional[int]] = {}
        self._lookup = Families(self._procs)
        self._families: Dict[int, Family] = {}
        self._looks = 0
        self._skipped: Dict[str, int] = {}  # trees that the last looks left out, and how often
        self._seen: Dict[int, _Seen] = {}
        self._trees: Set[str] = set()

    def look(self, gpus: Sequence[GpuReading]) -> Optional[Tuple[TreeReading, ...]]:
        births: Dict[int, Optional[int]] = {}
        skipped: Dict[str, int] = {}
        holders: Dict[int, Set[str]] = {}
        for gpu in gpus:
            for pid in gpu.pids:
                holders.setdefault(pid, set()).add(gpu.uuid)
        if not holders and any(gpu.processes is None for gpu in gpus):
            return None  # nobody seen, but a list was unreadable
        families = self._known_families(holders)
        inner = {pid for top, family in families.items() for pid in family.members if pid != top and pid in holders}
        seen: Dict[int, _Seen] = {}
        trees = []
        # A holder below another holder belongs to that one's tree.
        for top in sorted(set(holders) - inner):
            members = families[top].members
            uuids = tuple(sorted({uuid for pid in members for uuid in holders.get(pid, ())} | holders[top]))
            name = "pid-%d" % top
            if self._may_be_skipped(name, members, holders) and stood_low(uuids, gpus) is False:
                skipped[name] = self._skipped.get(name, 0) + 1
                seen.update({pid: self._seen[pid] for pid in members if pid in self._seen})
                births.update({pid: self._births[pid] for pid in members if pid in holders})
                trees.append(TreeReading(name, uuids, skipped=True))
            else:
                tree = self._tree(name, uuids, members, holders, seen, births)
                trees.append(tree if families[top].whole else _in_part(tree))
        unseen = tuple(gpu.uuid for gpu in gpus if gpu.processes is None or gpu.processes > len(gpu.pids))
        if unseen and (holders or any(gpu.processes for gpu in gpus)):
            trees.append(TreeReading(UNSEEN, unseen))
        self._seen, self._births, self._skipped, self._trees = seen, births, skipped, {tree.id for tree in trees}
        return tuple(trees)

    def _may_be_skipped(self, name: str, members: Sequence[int], holders: Mapping[int, Set[str]]) -> bool:
        """
        A tree whose GPUs work does not wait, so now and then is enough for its counters,
        and most beats of a busy machine need not read /proc at all.
        """
        return (
            name in self._trees
            and self._skipped.get(name, 0) < LOOK_EVERY - 1
            and all(self._births.get(pid) is not None for pid in members if pid in holders)
        )

    def born(self, pid: int) -> Optional[int]:
        """The birth of a process that held a GPU at the last look. None: it did not, or it is hidden or gone."""
        return self._births.get(pid)

    def _tree(
        self,
        name: str,
        uuids: Tuple[str, ...],
        members: List[int],
        holders: Dict[int, Set[str]],
        seen: Dict[int, _Seen],
        births: Dict[int, Optional[int]],
    ) -> TreeReading:
        known = name in self._trees
        blocked: Optional[bool] = False
        reads: List[Optional[int]] = []
        ticks: List[int] = []
        for pid in members:
            stat = self._procs.stat(pid)
            if pid in holders:
                births[pid] = stat.born if stat is not None else None
            if stat is None:
                if pid == members[0]:
                    blocked = None  # the holder itself is hidden or gone: nothing is known of this tree
                continue
            if stat.state == "D":
                blocked = True
            now = seen[pid] = _Seen(stat.born, self._procs.read_bytes(pid), stat.ticks)
            before = self._seen.get(pid)
            if before is None or before.born != stat.born:
                # A child born since the last look did all it has done since then.
                before = _Seen(stat.born, 0, 0) if known else None
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
            cpu_s=sum(ticks) / self._procs.ticks_per_s,
        )

    def _known_families(self, holders: Iterable[int]) -> Dict[int, Family]:
        """Looked up anew now and then, and when a holder comes or goes."""
        self._looks += 1
        if self._looks % FAMILY_EVERY == 0 or set(holders) != set(self._families):
            self._families = self._lookup.of(holders)
        return self._families


def _in_part(tree: TreeReading) -> TreeReading:
    """What is known where some of the tree may not have been seen: a wait that was seen, and CPU time that is at least so much."""
    return replace(tree, blocked=tree.blocked or None, on_data_path=tree.on_data_path or None, read_bytes=None)


def _grown(before: Optional[int], now: Optional[int]) -> Optional[int]:
    return None if before is None or now is None else max(0, now - before)


# --- over a window (pure) ---


@dataclass(frozen=True, eq=False, repr=False)
class TreeSpan(Value):
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
        if tree.skipped:
            return replace(self, beats=self.beats + 1, known=self.known + 1)
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
            wait_ratio=round(self.waited / self.known, 4) if self.known and self.known >= LEAST_KNOWN * self.beats else None,
            blocked_ratio=round(self.blocked / self.seen_blocked, 4) if self.seen_blocked else None,
            read_bytes=self.read_bytes if measured else None,
            cpu_cores=round(self.cpu_s / window_s, 4) if measured and self.cpu_s is not None and window_s > 0 else None,
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
