"""
Peak, mean, number and covered time of one signal over one report window (pure).

Covered: seconds between two good samples, each gap counted at most two beats. The
first gap of a window starts at the last good sample of the window before, so that
windows join without a seam and nothing is counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional

from agent.readings import Sample
from agent.report import Value

MOST_BEATS_PER_GAP = 2


@dataclass(frozen=True, eq=False, repr=False)
class Span(Value):
    """
    Samples folded so far. ``peak`` is None until there is a good sample: no sample is
    not a sample of zero. ``last_s``: boot clock of the last good sample, this window's
    or an earlier one's.
    """

    peak: Optional[float] = None
    total: float = 0.0
    samples: int = 0
    covered_s: float = 0.0
    last_s: Optional[float] = None

    @property
    def mean(self) -> Optional[float]:
        if self.peak is None or not self.samples:
            return None
        # Summing may round upwards; a mean above its own peak would be refused by the reaper.
        return min(self.total / self.samples, self.peak)

    def add(self, at_s: float, ratio: float, beat_s: float) -> Span:
        """With one more sample."""
        return self.add_all((Sample(at_s, ratio),), beat_s)

    def add_all(self, samples: Iterable[Sample], beat_s: float) -> Span:
        """
        With more samples. A ratio outside 0..1 is no sample at all: it is neither clamped
        nor counted. A sample not later than the last one counts for the peak and covers
        nothing.
        """
        peak, total, number, covered_s, last_s = self.peak, self.total, self.samples, self.covered_s, self.last_s
        most_s = MOST_BEATS_PER_GAP * beat_s
        for at_s, ratio, several, of_all, _ in samples:
            if not 0.0 <= ratio <= 1.0:  # nor is what is not a number
                continue
            if last_s is None:
                last_s = at_s
            elif at_s > last_s:
                covered_s += min(at_s - last_s, most_s)
                last_s = at_s
            if peak is None or ratio > peak:
                peak = ratio
            total += of_all if of_all is not None else several * ratio
            number += several
        return Span(peak, total, number, covered_s, last_s)

    def next(self) -> Span:
        """The empty span of the following window: it remembers only where the last good sample was."""
        return Span(last_s=self.last_s)
