"""
From the readings of one window to one report (pure: no clock, no files).

What was not read in this window is absent: nothing is carried over from an earlier
window except where the last good sample was.
"""

from __future__ import annotations

import math
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from agent.loader import MOST_TREES, TreeSpan, stood_low
from agent.readings import GpuReading, HostReading, Reading
from agent.report import MAX_ITEMS, MAX_TEXT, Gpu, Host, Loader, Totals
from agent.window import Span


class OpenWindow:
    """The window being filled. ``spans``: what the window before left behind per GPU (`Span.next`)."""

    def __init__(self, start_s: float, spans: Optional[Mapping[str, Span]] = None) -> None:
        self.start_s = start_s
        self.last: Optional[Reading] = None
        self._spans: Dict[str, Span] = dict(spans or {})
        self._latest: Dict[str, GpuReading] = {}
        self._trees: Dict[str, TreeSpan] = {}
        self._trees_known = True

    def add(self, reading: Reading, beat_s: float) -> None:
        """Take one beat's reading. ``beat_s`` is the beat it was taken on: a gap counts at most two of it."""
        self.last = reading
        gpus = reading.snapshot.gpus
        for gpu in gpus:
            self._latest[gpu.uuid] = gpu
            span = self._spans.get(gpu.uuid, Span())
            for sample in gpu.samples:
                span = span.add(sample.at_s, sample.ratio, beat_s)
            self._spans[gpu.uuid] = span
        if reading.trees is None:
            self._trees_known = False
            return
        for tree in reading.trees:
            low = stood_low(tree.gpus, gpus)
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
                found.append(_gpu(reading, self._spans.get(uuid, Span())))
        return tuple(found)

    def loaders(self, window_s: float) -> Optional[Tuple[Loader, ...]]:
        """None: not looked, or not all could be seen and nobody was. The longest waits come first where there are too many."""
        if self.last is None or (not self._trees and not self._trees_known):
            return None
        all_of_them: List[Loader] = [span.close(words(name) or "?", window_s) for name, span in self._trees.items()]
        all_of_them.sort(key=lambda tree: (-(tree.wait_ratio if tree.wait_ratio is not None else 2.0), tree.id))
        return tuple(all_of_them[:MOST_TREES])


def _gpu(reading: GpuReading, span: Span) -> Gpu:
    measured = span.peak is not None
    return Gpu(
        uuid=words(reading.uuid) or "?",
        model=words(reading.model),
        peak_ratio=span.peak,
        mean_ratio=span.mean,
        covered_s=span.covered_s if measured else None,
        samples=span.samples if measured else None,
        mem_used_bytes=reading.mem_used_bytes,
        mem_total_bytes=reading.mem_total_bytes,
        power_w=reading.power_w,
        energy_j=reading.energy_j,
        processes=reading.processes,
        trouble=words(reading.trouble),
    )


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
        gpu_energy_j=math.fsum(energies) if whole else None,
        cpu_s=now.cpu_busy_s,
        disk_bytes=now.disk_bytes,
        net_bytes=now.net_bytes,
    )


def words(text: Optional[str]) -> Optional[str]:
    """Text as the wire takes it: printable, at most 256 characters; None when nothing is left."""
    if text is None:
        return None
    kept = "".join(c if c.isprintable() else " " for c in text)[:MAX_TEXT].strip()
    return kept or None


def _rate(before: Optional[int], now: Optional[int], over_s: float) -> Optional[float]:
    if before is None or now is None or now < before or over_s <= 0:
        return None
    return (now - before) / over_s


def _share(before: Optional[HostReading], now: HostReading) -> Optional[float]:
    if before is None or before.cpu_busy_s is None or before.cpu_total_s is None:
        return None
    if now.cpu_busy_s is None or now.cpu_total_s is None:
        return None
    spent, whole = now.cpu_busy_s - before.cpu_busy_s, now.cpu_total_s - before.cpu_total_s
    return _within(spent / whole) if whole > 0 else None


def _within(ratio: Optional[float]) -> Optional[float]:
    return ratio if ratio is not None and math.isfinite(ratio) and 0.0 <= ratio <= 1.0 else None
