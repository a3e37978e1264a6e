"""
Data-loader wait of the processes that hold GPUs: a first, plain figure.

A tree is a process that holds a GPU, with all its children. At each beat we note
what shows that the tree stands on its data path; `datapath` decides whether it does.
The share of those beats' samples in which its GPUs stood low is the wait. Only these processes are looked at, in
/proc directly: walking all of /proc each beat would cost more than all the rest.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from agent.ambient import Ambient, Around, pressure_s
from agent.datapath import Evidence, EvidenceSum, Exact, add_exact, exact_of, on_data_path
from agent.families import Families, Family
from agent.procs import PROC, Io, Procs
from agent.readings import GpuReading, TreeReading
from agent.report import Loader, Value
from agent.sleepers import Sleepers

LOW_RATIO = 0.05
# Below this share of readable beats there is no figure: the rest could have been anything.
LEAST_KNOWN = 0.5
MOST_TREES = 64
MOST_OFF_GPU = 16  # that told of themselves and hold no GPU
FAMILY_EVERY = 3  # looks
LOOK_EVERY = 3  # at a tree whose GPUs work
ACCOUNTED_EVERY = 60  # looks, until we ask again whether the kernel accounts waits
UNSEEN = "unseen"  # stands for those of whom the driver says that they are there, and not who


@dataclass(frozen=True, eq=False, repr=False)
class _Seen(Value):
    born: int
    io: Io
    cpu_ticks: int
    delayed: Optional[int] = None


@dataclass(frozen=True, eq=False, repr=False)
class _Looked(Value):
    """Of one tree at its last look: when, and what was counted around it since boot."""

    at_s: float
    around: Around
    stalled_s: Optional[float] = None


class ProcLoaders:
    """The real loader source, over /proc. Remembers the counters of the processes it saw at the last look, and only those."""

    def __init__(
        self,
        proc: Path = PROC,
        ticks_per_s: Optional[int] = None,
        ambient: Optional[Ambient] = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._procs = Procs(proc, ticks_per_s=ticks_per_s)
        self._ambient, self._now_s = ambient if ambient is not None else Ambient(proc), now_s
        self._sleepers = Sleepers(proc)
        self._still: List[str] = []  # trees that were asked for sleepers at this look
        self._looked: Dict[str, _Looked] = {}
        self._groups: Dict[str, Optional[str]] = {}  # where the io pressure of a tree's control group is read, by the tree
        self._accounted = False
        self._asked_at = -ACCOUNTED_EVERY
        self._around: Optional[Around] = None  # read once a look, and only when a tree is looked at
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
        self._around, self._still = None, []
        looked: Dict[str, _Looked] = {}
        inner = {pid for top, family in families.items() for pid in family.members if pid != top and pid in holders}
        seen: Dict[int, _Seen] = {}
        trees = []
        # A holder below another holder belongs to that one's tree.
        for top in sorted(set(holders) - inner):
            members = families[top].members
            uuids = tuple(sorted({uuid for pid in members for uuid in holders.get(pid, ())} | holders[top]))
            name = "pid-%d" % top
            low = stood_low(uuids, gpus)
            if low is False and self._may_be_skipped(name, members, holders):
                skipped[name] = self._skipped.get(name, 0) + 1
                seen.update({pid: self._seen[pid] for pid in members if pid in self._seen})
                births.update({pid: self._births[pid] for pid in members if pid in holders})
                trees.append(TreeReading(name, uuids, skipped=True, members=tuple(members)))
                if name in self._looked:
                    looked[name] = self._looked[name]
            else:
                looked[name] = self._look_around(name, top)
                tree = self._tree(name, uuids, members, holders, seen, births, looked[name])
                tree = self._asked_for_sleepers(tree) if low is not False else tree
                trees.append(tree if families[top].whole else _in_part(tree))
        unseen = tuple(gpu.uuid for gpu in gpus if gpu.processes is None or gpu.processes > len(gpu.pids))
        if unseen and (holders or any(gpu.processes for gpu in gpus)):
            trees.append(TreeReading(UNSEEN, unseen))
        self._sleepers.keep_only(self._still)
        self._looked, self._groups = looked, {name: folder for name, folder in self._groups.items() if name in looked}
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

    def _look_around(self, name: str, top: int) -> _Looked:
        if self._around is None:
            self._around = self._ambient.read()
            if self._looks - self._asked_at >= ACCOUNTED_EVERY:
                self._asked_at, self._accounted = self._looks, self._ambient.blocked_is_accounted()
        if name not in self._groups:
            group = self._procs.group(top)
            self._groups[name] = group.folder + "/io.pressure" if group is not None and group.folder is not None else None
        folder = self._groups[name]
        return _Looked(self._now_s(), self._around, pressure_s(folder) if folder is not None else None)

    def _tree(
        self,
        name: str,
        uuids: Tuple[str, ...],
        members: List[int],
        holders: Dict[int, Set[str]],
        seen: Dict[int, _Seen],
        births: Dict[int, Optional[int]],
        looked: _Looked,
    ) -> TreeReading:
        known = name in self._trees
        blocked: Optional[bool] = False
        added: List[_Seen] = []
        worked = 0
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
            now = seen[pid] = _Seen(stat.born, self._procs.io(pid), stat.ticks, stat.delayed)
            before = self._seen.get(pid)
            if before is None or before.born != stat.born:
                # A child born since the last look did all it has done since then.
                before = _Seen(stat.born, _NOTHING, 0, 0) if known else None
            if before is not None:
                added.append(_since(before, now))
                worked += added[-1].cpu_ticks if pid not in holders else 0
        before_it = self._looked.get(name)
        if blocked is None or not added or before_it is None:
            return TreeReading(name, uuids, blocked=blocked, on_data_path=True if blocked else None, members=tuple(members))
        evidence = self._evidence(blocked, added, worked, before_it, looked)
        return TreeReading(
            name,
            uuids,
            blocked=blocked,
            on_data_path=on_data_path(evidence),
            read_bytes=evidence.read_bytes if evidence.complete else None,
            cpu_s=evidence.cpu_s,
            evidence=evidence,
            members=tuple(members),
        )

    def _asked_for_sleepers(self, tree: TreeReading) -> TreeReading:
        """With ``blocked`` true where a thread of it sleeps for its data, which only shows where nothing else does."""
        if tree.on_data_path or tree.blocked is not False:
            return tree
        self._still.append(tree.id)
        return replace(tree, blocked=True, on_data_path=True) if self._sleepers.sleeps(tree.id, tree.members) else tree

    def _evidence(self, blocked: Optional[bool], added: List[_Seen], worked: int, before: _Looked, now: _Looked) -> Evidence:
        hz = self._procs.ticks_per_s
        delayed = _sum_of([one.delayed for one in added]) if self._accounted else None
        return Evidence(
            for_s=now.at_s - before.at_s,
            blocked=blocked,
            complete=all(one.io.read_bytes is not None for one in added),
            read_bytes=_sum_of([one.io.read_bytes for one in added]),
            read_calls=_sum_of([one.io.read_calls for one in added]),
            called_bytes=_sum_of([one.io.called for one in added]),
            write_bytes=_sum_of([one.io.write_bytes for one in added]),
            put_bytes=_sum_of([one.io.put for one in added]),
            cpu_s=sum(one.cpu_ticks for one in added) / hz,
            worker_cpu_s=worked / hz,
            delayed_s=delayed / hz if delayed is not None else None,
            stalled_s=_grown_s(before.stalled_s, now.stalled_s),
            host_stalled_s=_grown_s(before.around.stalled_s, now.around.stalled_s),
            host_received_bytes=_grown(before.around.received_bytes, now.around.received_bytes),
        )

    def _known_families(self, holders: Iterable[int]) -> Dict[int, Family]:
        """Looked up anew now and then, and when a holder comes or goes."""
        self._looks += 1
        if self._looks % FAMILY_EVERY == 0 or set(holders) != set(self._families):
            self._families = self._lookup.of(holders)
        return self._families


def _in_part(tree: TreeReading) -> TreeReading:
    """What is known where some of the tree may not have been seen: a wait that was seen, and CPU time that is at least so much."""
    seen = tree.evidence
    if seen is not None:  # sums over those that were seen would read as little
        seen = replace(seen, blocked=seen.blocked or None, complete=False, worker_cpu_s=None, delayed_s=None)
    return replace(tree, blocked=tree.blocked or None, on_data_path=tree.on_data_path or None, read_bytes=None, evidence=seen)


_NOTHING = Io(0, 0, 0, 0, 0)


def _since(before: _Seen, now: _Seen) -> _Seen:
    """What one process did between two looks."""
    io = Io(*(_grown(was, is_) for was, is_ in zip(before.io, now.io)))
    return _Seen(now.born, io, max(0, now.cpu_ticks - before.cpu_ticks), _grown(before.delayed, now.delayed))


def _grown(before: Optional[int], now: Optional[int]) -> Optional[int]:
    return None if before is None or now is None else max(0, now - before)


def _grown_s(before: Optional[float], now: Optional[float]) -> Optional[float]:
    return None if before is None or now is None else max(0.0, now - before)


def _sum_of(parts: Sequence[Optional[int]]) -> Optional[int]:
    """Of those that are known; None: none is."""
    readable = [part for part in parts if part is not None]
    return sum(readable) if readable else None


# --- over a window (pure) ---


@dataclass(frozen=True, eq=False, repr=False)
class TreeSpan(Value):
    """
    One tree's beats folded so far. A beat is known when both halves are: whether the
    GPUs stood low and whether the tree was on its data path. ``read_bytes`` and
    ``cpu_s`` are sums; None once a part is missing. Beats at which a process only told of itself and
    held no GPU add to ``exact`` alone, so that they never stand for its tree; one that has no other beat is off the GPUs.
    """

    beats: int = 0
    known: int = 0
    waited: float = 0.0
    owing: int = 0  # beats that were not looked at and in which the GPUs stood low for a part: the next look says what it was
    owed: float = 0.0  # those parts
    seen_blocked: int = 0
    blocked: int = 0
    read_bytes: Optional[int] = 0
    cpu_s: Optional[float] = 0.0
    measured: int = 0
    evidence: EvidenceSum = EvidenceSum()
    exact: Dict[int, Exact] = field(default_factory=dict)  # what its processes told of themselves, by pid

    def add(self, tree: TreeReading, low: Optional[float]) -> TreeSpan:
        """``low``: the share of the beat in which its GPUs stood low (False and True are none and all of it)."""
        exact = add_exact(self.exact, tree.exact) if tree.exact else self.exact
        if not tree.gpus:
            return replace(self, exact=exact)
        if tree.skipped:
            if low:
                return replace(self, beats=self.beats + 1, owing=self.owing + 1, owed=self.owed + low, exact=exact)
            return replace(self, beats=self.beats + 1, known=self.known + (low is not None), exact=exact)
        path = tree.on_data_path
        first = tree.cpu_s is None and tree.blocked is not None and self.measured == 0
        return TreeSpan(
            beats=self.beats + 1,
            known=self.known + ((low is not None) + self.owing if path is not None else 0),
            waited=self.waited + ((low or 0.0) + self.owed if path is True else 0.0),
            seen_blocked=self.seen_blocked + (tree.blocked is not None),
            blocked=self.blocked + (tree.blocked is True),
            # The first sight of a tree has nothing to compare with; that is no hole in the sum.
            read_bytes=self.read_bytes if first else _sum(self.read_bytes, tree.read_bytes),
            cpu_s=self.cpu_s if first else _sum_s(self.cpu_s, tree.cpu_s),
            measured=self.measured + (tree.cpu_s is not None),
            evidence=self.evidence.add(tree.evidence) if tree.evidence is not None else self.evidence,
            exact=exact,
        )

    def close(self, name: str, window_s: float) -> Loader:
        measured = self.measured > 0
        answered = self.beats - self.owing  # the next look at those comes in the next window
        exact = exact_of(self.exact)
        told = self.evidence.on_the_wire()
        if exact is not None:
            told.update(
                exact_wait_ratio=round(min(exact.wait_s / exact.covered_s, 1.0), 4), exact_s=round(exact.covered_s, 1), batches=exact.batches
            )
        if not self.beats and self.exact:
            return Loader(name, off_gpu=True, **told)  # type: ignore[arg-type]
        return Loader(
            id=name,
            wait_ratio=round(self.waited / self.known, 4) if self.known and self.known >= LEAST_KNOWN * answered else None,
            blocked_ratio=round(self.blocked / self.seen_blocked, 4) if self.seen_blocked else None,
            read_bytes=self.read_bytes if measured else None,
            cpu_cores=round(self.cpu_s / window_s, 4) if measured and self.cpu_s is not None and window_s > 0 else None,
            **told,  # type: ignore[arg-type]
        )


def low_share(uuids: Sequence[str], gpus: Sequence[GpuReading]) -> Optional[float]:
    """
    In what share of one beat's samples these GPUs stood low, of them all the one that did least. One that never did is enough for 0;
    else one unknown for None.
    """
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    shares: List[Optional[float]] = []
    for uuid in uuids:
        gpu = by_uuid.get(uuid)
        number = sum(sample.number for sample in gpu.samples) if gpu is not None else 0
        if gpu is None or not number:
            shares.append(None)
            continue
        low = sum(sample.low if sample.low is not None else sample.number * (sample.ratio < LOW_RATIO) for sample in gpu.samples)
        shares.append(low / number)
    known = [share for share in shares if share is not None]
    return 0.0 if 0.0 in known else None if len(known) < len(shares) or not known else min(known)


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
