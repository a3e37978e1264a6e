"""The energy counter against a utilisation of zero."""

from __future__ import annotations

from typing import List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.build import OpenWindow
from agent.readings import GpuReading, GpuSnapshot, Reading, Sample
from agent.report import Gpu
from agent.witness import Energy, Witness, margin_w, mean_power_w


class Card:
    """One GPU over windows of a minute: what the driver says, and what the energy counter shows."""

    def __init__(self) -> None:
        self.witness, self.now_s, self.joules = Witness(), 1000.0, 5000.0

    def window(self, watts: Optional[float], ratio: float = 0.0, processes: Optional[int] = 0, mem: int = 0, beats: int = 12) -> Gpu:
        window = OpenWindow(self.now_s, None, self.witness)
        for _ in range(beats):
            self.now_s += 5.0
            self.joules += 5.0 * (watts or 0.0)
            energy = None if watts is None else self.joules
            reading = GpuReading("GPU-0", None, (Sample(self.now_s, ratio),), mem, 80 << 30, None, energy, processes, energy_at_s=self.now_s)
            window.add(Reading(GpuSnapshot(gpus=(reading,)), None), 5.0)
        (gpu,) = window.gpus({"GPU-0": None}, None)
        return gpu


def believed(gpu: Gpu) -> bool:
    figures = (gpu.peak_ratio, gpu.mean_ratio, gpu.covered_s, gpu.samples)
    assert (None in figures) == (figures == (None,) * 4)
    return gpu.peak_ratio is not None


def test_zero_at_the_power_of_rest_is_believed() -> None:
    card = Card()

    assert all(believed(card.window(watts)) for watts in (60.0, 61.0, 59.0, 75.0))


def test_zero_at_the_power_of_work_is_not_believed_and_says_why() -> None:
    card = Card()
    card.window(60.0)
    doubted = card.window(350.0)

    assert not believed(doubted)
    assert doubted.trouble == "utilisation 0 not believed: drew 350 W, at rest 60 W"
    assert doubted.processes == 0
    assert believed(card.window(62.0))


def test_before_rest_is_known_nothing_is_doubted() -> None:
    card = Card()

    assert believed(card.window(350.0, processes=1))  # with a process on it nothing is learnt
    assert believed(card.window(350.0, mem=40 << 30))
    assert believed(card.window(350.0, processes=None))
    assert believed(card.window(70.0))


def test_first_sight_at_work_is_corrected_by_the_first_rest() -> None:
    card = Card()
    card.window(350.0)  # taken for rest: nothing better is known
    card.window(60.0)

    assert not believed(card.window(350.0))


def test_loaded_model_that_wakes_the_gpu_is_not_work() -> None:
    card = Card()
    card.window(9.0)

    assert believed(card.window(50.0, processes=1, mem=20 << 30))
    assert not believed(card.window(250.0, processes=1, mem=20 << 30))


def test_next_to_no_use_at_the_power_of_work_is_not_believed_either() -> None:
    """What counts as idle is not only the zero: a driver that says one percent of a GPU that works lets it go as well."""
    card = Card()
    card.window(60.0)
    doubted = card.window(350.0, ratio=0.01)

    assert not believed(doubted)
    assert doubted.trouble == "utilisation 1% not believed: drew 350 W, at rest 60 W"


def test_next_to_no_use_wakes_a_gpu_and_is_believed() -> None:
    card = Card()
    card.window(60.0)

    assert card.window(120.0, ratio=0.03).peak_ratio == 0.03


def test_use_is_never_doubted() -> None:
    card = Card()
    card.window(60.0)

    assert card.window(350.0, ratio=0.06).peak_ratio == 0.06


def test_gpu_without_an_energy_counter_is_never_doubted() -> None:
    card = Card()
    card.window(60.0)

    assert believed(card.window(None))


def test_window_too_short_for_the_counter_is_not_doubted() -> None:
    card = Card()
    card.window(60.0)

    assert believed(card.window(350.0, beats=2))


def test_work_before_the_window_does_not_count_in_it() -> None:
    """The counter's first reading in a window is its begin, not the last of the window before."""
    card = Card()
    card.window(60.0)
    card.window(350.0, ratio=0.9)

    assert believed(card.window(60.0))


@pytest.mark.parametrize(
    ("first", "last", "power_w"),
    [
        (Energy(0.0, 100.0), Energy(60.0, 6100.0), 100.0),
        (Energy(0.0, 100.0), Energy(9.0, 6100.0), None),
        (Energy(0.0, 100.0), Energy(60.0, 100.0), None),
        (Energy(0.0, 100.0), Energy(60.0, 5.0), None),
        (None, None, None),
    ],
    ids=["a_minute", "too_short", "stands_still", "started_anew", "unreadable"],
)
def test_mean_power(first: Optional[Energy], last: Optional[Energy], power_w: Optional[float]) -> None:
    assert mean_power_w(first, last) == power_w


windows = st.lists(st.tuples(st.floats(1.0, 700.0), st.booleans()), min_size=1, max_size=30)


@given(windows)
def test_doubt_needs_more_than_the_least_power_ever_seen_empty(seen: List[Tuple[float, bool]]) -> None:
    """Whatever came before: a window is doubted exactly when it drew clearly more than the quietest empty one."""
    witness, at_s, joules = Witness(), 0.0, 0.0
    rest: Optional[float] = None
    for watts, empty in seen:
        first = Energy(at_s, joules)
        at_s, joules = at_s + 60.0, joules + 60.0 * watts
        last = Energy(at_s, joules)
        power = mean_power_w(first, last)
        assert power is not None
        doubt = witness.doubts("GPU-0", first, last, empty)

        assert (doubt is not None) == (rest is not None and power > rest + margin_w(rest, empty))
        if doubt is None and empty:
            rest = power if rest is None else min(rest, power)
