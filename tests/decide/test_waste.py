"""What waiting for data costs: shown, and never a reason for anything."""

from datetime import timedelta

import pytest

from reaper.decide.waste import IdleGpus, Waste, idle_gpus, idle_told, told, waste
from reaper.decide.windows import fold
from tests.builders import HOUR, MINUTE, NOW, gpu, loader, observation


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


# --- GPUs that nobody uses on a machine that works ---


def eight(*peaks, ago=0, **changes):
    return observation(ended_at=NOW - ago * MINUTE, gpus=tuple(gpu(f"GPU-{n}", peak=peak, **changes) for n, peak in enumerate(peaks)))


def hours(*windows):
    """A window a minute, each of ``windows`` for an hour, the last one up to now."""
    return [eight(*peaks, ago=60 * (len(windows) - n) - m) for n, peaks in enumerate(windows) for m in range(1, 61)]


def unused(windows, count=8, term=2 * HOUR, price=32.0):
    return idle_gpus(windows[-1], fold(windows).quiet_gpus(0.05), count, 0.05, term, price)


ONE_OF_EIGHT = (0.9, *[0.0] * 7)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        pytest.param(hours(*[ONE_OF_EIGHT] * 3), (7, 8, 3 * HOUR, 672.0), id="one of eight computes: seven eighths of the price"),
        pytest.param(hours(ONE_OF_EIGHT), None, id="for less than the term"),
        pytest.param(hours((0.9,) * 8, *[ONE_OF_EIGHT] * 2), (7, 8, 2 * HOUR, 672.0), id="since the job shrank"),
        pytest.param(hours(ONE_OF_EIGHT, (0.9, 0.9, *[0.0] * 6), ONE_OF_EIGHT), (6, 8, 3 * HOUR, 576.0), id="one that was used an hour ago is not among them"),
        pytest.param(hours(*[(0.9,) * 8] * 3), None, id="all of them compute"),
        pytest.param(hours(*[(0.0,) * 8] * 3), None, id="none of them does: that is an idle machine"),
        pytest.param(hours(*[(0.9,)] * 3), None, id="it has only one"),
        pytest.param(hours(*[(0.9, None, 0.0, 0.0)] * 3), (2, 8, 3 * HOUR, 192.0), id="one that cannot be read is neither"),
        pytest.param(hours(*[(0.05, 0.06)] * 3), (1, 8, 3 * HOUR, 96.0), id="at the limit is idle, above it is not"),
    ],
)  # fmt: skip
def test_gpus_that_nobody_uses_while_others_compute(windows, expected):
    got = unused(windows)

    assert (got is None) == (expected is None)
    assert got is None or (got.idle, got.count, got.idle_for, round(got.usd_per_day, 6)) == expected


def test_memory_of_somebody_on_an_idle_gpu_is_told():
    windows = [eight(0.9, 0.0, ago=n, processes=1) for n in range(180, -1, -1)]

    assert unused(windows, count=2).held == 1


def test_missing_gpu_is_not_an_idle_one_and_without_a_price_there_is_no_cost():
    assert unused(hours(*[(0.9, 0.0)] * 3), count=8, price=None) == IdleGpus(1, 8, 3 * HOUR)


@pytest.mark.parametrize(("seen", "quiet"), [(None, {}), (eight(0.9, 0.0), None), (observation(verified=False, gpus=eight(0.9, 0.0).gpus), {"GPU-1": NOW - 9 * HOUR})])
def test_without_a_report_that_is_believed_nothing_is_said(seen, quiet):
    assert idle_gpus(seen, quiet, 2, 0.05, HOUR, 1.0) is None


def test_gpu_that_came_later_has_been_idle_since_then():
    windows = [eight(0.9, ago=n) for n in range(180, 60, -1)] + [eight(0.9, 0.0, ago=n) for n in range(60, -1, -1)]

    assert fold(windows).quiet_gpus(0.05)["GPU-1"] == NOW - 61 * MINUTE


def test_words_for_people_about_idle_gpus():
    assert idle_told(IdleGpus(7, 8, 3 * HOUR, 2, 672.0)) == "7 of 8 GPUs idle for 3h while others work, memory taken on 2, costs $672.00 a day"
    assert idle_told(IdleGpus(1, 2, timedelta(minutes=90))) == "1 of 2 GPUs idle for 1h 30m while others work"
