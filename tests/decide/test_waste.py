"""What waiting for data costs: shown, and never a reason for anything."""

import pytest

from reaper.decide.waste import Waste, told, waste
from tests.builders import loader, observation


def seen(*trees):
    return observation(loaders=trees)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(seen(loader("a", wait=0.5)), Waste("a", 0.5, False, 18.0), id="half of the time, half of the price"),
        pytest.param(seen(loader("a", wait=0.8, exact=0.5)), Waste("a", 0.5, True, 18.0), id="what the job measured is preferred to our look"),
        pytest.param(seen(loader("a", wait=0.0, exact=0.6)), Waste("a", 0.6, True, 21.6), id="only the job noticed"),
        pytest.param(seen(loader("a", wait=1.0), loader("b", wait=0.0)), Waste("a", 1.0, False, 18.0), id="one of two trees waits: half of the machine"),
        pytest.param(seen(loader("a", wait=0.0), loader("b", None, None, exact=1.0, off_gpu=True)), Waste("b", 1.0, True, 0.0), id="one that holds no GPU keeps no GPU waiting"),
        pytest.param(seen(loader("b", None, None, exact=0.9, off_gpu=True)), Waste("b", 0.9, True, 32.4), id="nobody holds a GPU, and one waits before it does"),
        pytest.param(seen(loader("a", wait=0.29)), None, id="below the policy's ratio"),
        pytest.param(seen(loader("a", wait=None)), None, id="not known"),
        pytest.param(seen(loader("a", wait=float("nan"))), None, id="not a number"),
        pytest.param(seen(), None, id="no tree"),
        pytest.param(observation(loaders=None), None, id="no look"),
        pytest.param(None, None, id="no report"),
    ],
)
def test_share_and_price_of_a_day(given, expected):
    got = waste(given, 0.30, 1.5)

    assert (got is None) == (expected is None)
    if got is not None:
        assert (got.tree, got.share, got.measured, round(got.usd_per_day, 6)) == (expected.tree, expected.share, expected.measured, expected.usd_per_day)


def test_without_a_price_there_is_no_cost():
    assert waste(seen(loader("a", wait=0.62)), 0.30, None) == Waste("a", 0.62, False)


def test_words_for_people():
    assert told(Waste("a", 0.62, False, 1234.5)) == "starved: waits for data 62% of the window, costs $1,234.50 a day"
    assert told(Waste("a", 0.62, True)) == "starved: waits for data 62% of the window, measured by the job"
