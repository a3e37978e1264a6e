"""
Peak, mean, number and covered time of one signal over one report window (pure).

Covered: seconds between two good samples, each gap counted at most two beats. The
first gap of a window starts at the last good sample of the window before, so that
windows join without a seam and nothing is counted twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional

MOST_BEATS_PER_GAP = 2


@dataclass(frozen=True)
class Span:
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
        """
        With one more sample. A ratio outside 0..1 is no sample at all: it is neither
        clamped nor counted. A sample not later than the last one counts for the peak
        and covers nothing.
        """
        if not math.isfinite(ratio) or not 0.0 <= ratio <= 1.0:
            return self
        gap = 0.0
        last = at_s
        if self.last_s is not None:
            gap = min(max(0.0, at_s - self.last_s), MOST_BEATS_PER_GAP * beat_s)
            last = max(at_s, self.last_s)
        peak = ratio if self.peak is None else max(self.peak, ratio)
        return Span(peak, self.total + ratio, self.samples + 1, self.covered_s + gap, last)

    def next(self) -> Span:
        """The empty span of the following window: it remembers only where the last good sample was."""
        return Span(last_s=self.last_s)
