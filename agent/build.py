"""
From the readings of one window to one report (pure: no clock, no files).

What was not read in this window is absent: nothing is carried over from an earlier
window except where the last good sample was.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from agent import at_work
from agent.at_work import words
from agent.loader import LOW_RATIO, MOST_OFF_GPU, MOST_TREES, UNSEEN, TreeSpan, low_share
from agent.readings import GpuReading, HostReading, JobReading, PresenceReading, Reading
from agent.report import MAX_ITEMS, Gpu, Holder, Host, Job, Links, Loader, Person, Presence, Slice, Totals
from agent.window import Span
from agent.witness import HARDLY_BYTES, Energy, Witness


class OpenWindow:
    """
    The window being filled. ``spans``: what the window before left behind per GPU
    (`Span.next`). ``witness`` outlives the windows; without one no zero is doubted.
    """

    def __init__(self, start_s: float, spans: Optional[Mapping[str, Span]] = None, witness: Optional[Witness] = None) -> None:
        self._witness = witness
        self._energy: Dict[str, Tuple[Energy, Energy]] = {}  # the first and the last reading in this window
        self._occupied: Set[str] = set()  # GPUs that were not seen empty at every beat
        self.start_s = start_s
        self.last: Optional[Reading] = None
        self._spans: Dict[str, Span] = dict(spans or {})
        self._latest: Dict[str, GpuReading] = {}
        self._most: Dict[str, Tuple[Optional[int], Optional[int]]] = {}  # processes and memory used, at any beat
        self._trees: Dict[str, TreeSpan] = {}
        self._trees_known = True
        self._looks = 0  # at the trees
        self._presence: Dict[float, PresenceReading] = {}  # by when it was looked

    def add(self, reading: Reading, beat_s: float) -> None:
        """Take one beat's reading. ``beat_s`` is the beat it was taken on: a gap counts at most two of it."""
        self.last = reading
        if reading.work is not None and reading.work.presence is not None:
            self._presence[reading.work.presence.at_s] = reading.work.presence
        gpus = reading.snapshot.gpus
        for gpu in gpus:
            self._latest[gpu.uuid] = gpu
            processes, mem = self._most.get(gpu.uuid, (None, None))
            self._most[gpu.uuid] = (_most(processes, gpu.processes), _most(mem, gpu.mem_used_bytes))
            self._spans[gpu.uuid] = self._spans.get(gpu.uuid, Span()).add_all(gpu.samples, beat_s)
            if gpu.processes != 0 or (gpu.mem_used_bytes is not None and gpu.mem_used_bytes > HARDLY_BYTES):
                self._occupied.add(gpu.uuid)
            if gpu.energy_j is not None and gpu.energy_at_s is not None and gpu.energy_at_s >= self.start_s:
                read = Energy(gpu.energy_at_s, gpu.energy_j)
                self._energy[gpu.uuid] = (self._energy.get(gpu.uuid, (read, read))[0], read)
        if reading.trees is None:
            self._trees_known = False
            return
        self._looks += 1
        for tree in reading.trees:
            low = low_share(tree.gpus, gpus)
            self._trees[tree.id] = self._trees.get(tree.id, TreeSpan()).add(tree, low)

    def next_spans(self) -> Dict[str, Span]:
        return {uuid: span.next() for uuid, span in self._spans.items()}

    def gpus(self, known: Mapping[str, Optional[str]], trouble: Optional[str]) -> Tuple[Gpu, ...]:
        """One entry per GPU ever seen (uuid to model). One without a reading in this window has no figure, and ``trouble`` as its reason."""
        found = []
        for uuid in list(known)[:MAX_ITEMS]:
            reading = self._latest.get(uuid)
            if reading is None:
                found.append(Gpu(words(uuid) or "?", model=words(known[uuid]), trouble=words(trouble or "no reading")))
            else:
                found.append(_gpu(self._at_most(reading), *self._believed(uuid, reading), self._holders(uuid)))
        return tuple(found)

    def _at_most(self, reading: GpuReading) -> GpuReading:
        """What held the GPU at any beat, so that one who comes and goes within a window is told. What the last beat did not know stays unknown."""
        processes, mem = self._most[reading.uuid]
        return replace(
            reading,
            processes=processes if reading.processes is not None else None,
            mem_used_bytes=mem if reading.mem_used_bytes is not None else None,
        )

    def _believed(self, uuid: str, reading: GpuReading) -> Tuple[Span, Optional[str]]:
        """The samples folded, and the GPU's trouble. Next to no use that the energy counter contradicts is no figure."""
        span = self._spans.get(uuid, Span())
        if self._witness is None or span.peak is None or span.peak > LOW_RATIO:
            return span, reading.trouble
        first, last = self._energy.get(uuid, (None, None))
        doubt = self._witness.doubts(uuid, first, last, uuid not in self._occupied, span.peak)
        return (span, reading.trouble) if doubt is None else (Span(), doubt)

    def jobs(self, end_s: float) -> Optional[Tuple[Job, ...]]:
        """None: not looked at the window's last beat, or a job may be hidden from us."""
        work = self.last.work if self.last is not None else None
        return tuple(_job(job, end_s) for job in work.jobs) if work is not None and work.jobs is not None else None

    def people(self) -> Optional[Tuple[Person, ...]]:
        work = self.last.work if self.last is not None else None
        return tuple(_person(person) for person in work.people) if work is not None and work.people is not None else None

    def presence(self, end_s: float) -> Optional[Presence]:
        """None: nobody looks. Of looks before this window only the last one counts, and only where there was none in it."""
        looks = sorted(self._presence.values())
        looks = [look for look in looks if look.at_s >= self.start_s] or looks[-1:]
        return at_work.fold(looks, end_s) if looks else None

    def links(self) -> Optional[Links]:
        return self.last.work.links if self.last is not None and self.last.work is not None else None

    def _holders(self, uuid: str) -> Optional[Tuple[Holder, ...]]:
        """Of a GPU that computed in this window nobody asks who holds it, and a report is to be small."""
        work = self.last.work if self.last is not None else None
        held = work.holders.get(uuid) if work is not None else None
        busy = self._spans.get(uuid, Span()).peak
        return tuple(_holder(holder) for holder in held) if held and (busy is None or busy < LOW_RATIO) else None

    def loaders(self, window_s: float) -> Optional[Tuple[Loader, ...]]:
        """None: not looked, or not all could be seen and nobody was. Where there are too many, what cannot be read and what works most come first."""
        if self.last is None or (not self._trees and not self._trees_known):
            return None
        # Once or twice in a window a process list fails; who was not seen then is seen at the other beats.
        trees = {name: span for name, span in self._trees.items() if name != UNSEEN or 2 * span.beats >= self._looks}
        all_of_them: List[Loader] = [span.close(words(name) or "?", window_s) for name, span in trees.items()]
        all_of_them.sort(key=lambda tree: (-_matters(tree), tree.id))
        # Those without a GPU change from beat to beat: were there many, none with a GPU would be left.
        alone = [tree for tree in all_of_them if tree.off_gpu][:MOST_OFF_GPU]
        owners = [tree for tree in all_of_them if not tree.off_gpu][: MOST_TREES - len(alone)]
        return tuple(sorted(owners + alone, key=lambda tree: (-_matters(tree), tree.id)))


def _gpu(reading: GpuReading, span: Span, trouble: Optional[str], holders: Optional[Tuple[Holder, ...]]) -> Gpu:
    measured = span.peak is not None
    return Gpu(
        uuid=words(reading.uuid) or "?",
        model=words(reading.model),
        peak_ratio=span.peak,
        mean_ratio=_floor(span.mean),
        covered_s=round(span.covered_s, 3) if measured else None,
        samples=span.samples if measured else None,
        mem_used_bytes=reading.mem_used_bytes,
        mem_total_bytes=reading.mem_total_bytes,
        power_w=reading.power_w,
        energy_j=round(reading.energy_j, 1) if reading.energy_j is not None else None,
        processes=reading.processes,
        trouble=words(trouble),
        holders=holders,
        slices=_slices(reading.slices),
    )


def _most(before: Optional[int], now: Optional[int]) -> Optional[int]:
    return before if now is None else now if before is None else max(before, now)


def _matters(tree: Loader) -> float:
    """
    How much a tree speaks for work: its wait (a share, also as it told it) or its CPU (cores), whichever is most; not known
    is the most. Of one without a GPU only what it told can be known.
    """
    told = tree.exact_wait_ratio if tree.exact_wait_ratio is not None else 0.0
    if tree.off_gpu:
        return told
    if tree.wait_ratio is None or tree.cpu_cores is None:
        return math.inf
    return max(tree.wait_ratio, tree.cpu_cores, told)


def _slices(slices: Optional[Tuple[Slice, ...]]) -> Optional[Tuple[Slice, ...]]:
    return tuple(replace(one, uuid=words(one.uuid) or "?") for one in slices[:MAX_ITEMS]) if slices is not None else None


def _holder(holder: Holder) -> Holder:
    """Names are what a program calls itself: anything can stand in them."""
    since_s = round(holder.since_s, 1) if holder.since_s is not None else None
    return replace(holder, name=words(holder.name), user=words(holder.user), since_s=since_s)


def _job(job: JobReading, end_s: float) -> Job:
    age_s = round(max(0.0, end_s - job.ended_s), 1) if job.ended_s is not None else None
    # A launcher whose name cannot be printed is still one.
    launcher = words(job.launcher) or "?" if job.launcher is not None else None
    return Job(words(job.id) or "?", age_s, launcher, job.launcher_known)


def _person(person: Person) -> Person:
    return replace(person, user=words(person.user) or "?", idle_s=round(person.idle_s) if person.idle_s is not None else None)


def host(before: Optional[HostReading], now: HostReading, over_s: float) -> Host:
    """Rates over the window from two readings of counters. A counter that ran backwards (a disk or interface left) has no rate."""
    return Host(
        cpu_ratio=_share(before, now),
        cpus=now.cpus,
        mem_used_ratio=_within(now.mem_used_ratio),
        disk_bytes_per_s=_rate(before.disk_bytes if before is not None else None, now.disk_bytes, over_s),
        net_bytes_per_s=_rate(before.net_bytes if before is not None else None, now.net_bytes, over_s),
        orchestrators=now.orchestrators[:MAX_ITEMS] if now.orchestrators is not None else None,
    )


def totals(now: HostReading, gpus: Sequence[Gpu], expected: Optional[int]) -> Totals:
    """
    Counters since boot. The GPUs' energy is a sum over all that are expected, or absent:
    a sum that lacks one would look like a step when that one comes back.
    """
    energies = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
    whole = bool(gpus) and len(energies) == len(gpus) and (expected is None or len(gpus) >= expected)
    return Totals(
        gpu_energy_j=round(math.fsum(energies), 1) if whole else None,
        cpu_s=round(now.cpu_busy_s, 2) if now.cpu_busy_s is not None else None,
        disk_bytes=now.disk_bytes,
        net_bytes=now.net_bytes,
    )


def _floor(ratio: Optional[float]) -> Optional[float]:
    """To four places, downwards: a mean must not come to lie above its peak."""
    return math.floor(ratio * 1e4) / 1e4 if ratio is not None else None


def _rate(before: Optional[int], now: Optional[int], over_s: float) -> Optional[float]:
    if before is None or now is None or now < before or over_s <= 0:
        return None
    return round((now - before) / over_s, 1)


def _share(before: Optional[HostReading], now: HostReading) -> Optional[float]:
    if before is None or before.cpu_busy_s is None or before.cpu_total_s is None:
        return None
    if now.cpu_busy_s is None or now.cpu_total_s is None:
        return None
    spent, whole = now.cpu_busy_s - before.cpu_busy_s, now.cpu_total_s - before.cpu_total_s
    # The kernel's count of waiting may run back by a tick: all busy is then more than all.
    return _within(min(spent / whole, 1.0)) if whole > 0 else None


def _within(ratio: Optional[float]) -> Optional[float]:
    return round(ratio, 4) if ratio is not None and math.isfinite(ratio) and 0.0 <= ratio <= 1.0 else None
