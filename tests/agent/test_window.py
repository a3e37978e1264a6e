"""Peak, mean and covered time of a window."""

from __future__ import annotations

import math
from typing import List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.window import Span

NAN = math.nan


def fold(samples: List[Tuple[float, float]], beat_s: float = 5.0, last_s: Optional[float] = None) -> Span:
    span = Span(last_s=last_s)
    for at_s, ratio in samples:
        span = span.add(at_s, ratio, beat_s)
    return span


CASES = [
    # id, samples, last good sample before, expected (peak, mean, samples, covered)
    ("no_sample_is_not_a_sample_of_zero", [], None, (None, None, 0, 0.0)),
    ("zero_is_a_sample", [(0, 0.0)], None, (0.0, 0.0, 1, 0.0)),
    ("one_sample_covers_nothing", [(3, 0.5)], None, (0.5, 0.5, 1, 0.0)),
    ("two_samples_cover_their_gap", [(0, 0.25), (5, 0.75)], None, (0.75, 0.5, 2, 5.0)),
    ("first_gap_starts_in_the_window_before", [(5, 0.5)], 0.0, (0.5, 0.5, 1, 5.0)),
    ("a_gap_counts_at_most_two_beats", [(0, 0.5), (60, 0.5)], None, (0.5, 0.5, 2, 10.0)),
    ("a_gap_of_exactly_two_beats_counts_whole", [(0, 0.5), (10, 0.5)], None, (0.5, 0.5, 2, 10.0)),
    ("first_gap_is_cut_at_two_beats_too", [(500, 0.5)], 0.0, (0.5, 0.5, 1, 10.0)),
    ("above_one_is_dropped_not_clamped", [(0, 0.5), (5, 1.01)], None, (0.5, 0.5, 1, 0.0)),
    ("below_zero_is_dropped", [(0, -0.01)], None, (None, None, 0, 0.0)),
    ("not_a_number_is_dropped", [(0, NAN)], None, (None, None, 0, 0.0)),
    ("infinity_is_dropped", [(0, math.inf)], None, (None, None, 0, 0.0)),
    ("a_bad_sample_makes_no_bridge", [(0, 0.5), (8, 2.0), (16, 0.5)], None, (0.5, 0.5, 2, 10.0)),
    ("a_repeated_moment_covers_nothing", [(5, 0.5), (5, 0.75)], None, (0.75, 0.625, 2, 0.0)),
    ("a_late_sample_counts_for_the_peak_only", [(5, 0.5), (2, 1.0), (7, 0.0)], None, (1.0, 0.5, 3, 2.0)),
]


@pytest.mark.parametrize(("samples", "last_s", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_span(samples: List[Tuple[float, float]], last_s: Optional[float], expected: Tuple[object, ...]) -> None:
    span = fold(samples, last_s=last_s)

    assert (span.peak, span.mean, span.samples, span.covered_s) == expected


def test_windows_join_without_a_seam() -> None:
    whole = fold([(float(t), 0.1) for t in range(121)], beat_s=1.0)
    first = fold([(float(t), 0.1) for t in range(60)], beat_s=1.0)
    second = first.next()
    for t in range(60, 121):
        second = second.add(float(t), 0.1, 1.0)

    assert first.covered_s + second.covered_s == whole.covered_s == 120.0


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(allow_nan=True, allow_infinity=True))),
    st.floats(0.1, 60),
)
def test_no_samples_make_more_cover_than_time_or_a_mean_above_the_peak(samples: List[Tuple[float, float]], beat_s: float) -> None:
    span = fold(samples, beat_s)
    good = [(at, r) for at, r in samples if 0.0 <= r <= 1.0]

    assert span.samples == len(good)
    assert (span.peak is None) == (not good) == (span.mean is None)
    if span.peak is not None and span.mean is not None:
        assert span.peak == max(r for _, r in good)
        assert span.mean <= span.peak
        assert 0.0 <= span.covered_s <= max(at for at, _ in good) - min(at for at, _ in good) + 1e-6
        assert span.covered_s <= 2 * beat_s * (len(good) - 1) + 1e-6
