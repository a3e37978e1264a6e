"""Never more than any limit in any window, and no limit that binds where it should not."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reaper.decide.budget import Ask, limits, per_cycle, price_of, refusal
from reaper.model.policy import CountBudget
from tests.builders import DAY, HOUR, MINUTE, NOW, SECOND, ask, debit

PRICES = {"g5.xlarge": 1.0, "g5.48xlarge": 16.3, "p5.48xlarge": 98.3}


NOTHING = Ask(0, 0.0)


def fits(budget, its, debits=(), now=NOW, running=1000, taken=NOTHING):
    return refusal(its, limits(budget, debits, now, running), taken) is None


@pytest.mark.parametrize(("budget", "used", "admitted"), [
    pytest.param(CountBudget(), [MINUTE] * 500, True, id="an absent limit is unlimited"),
    pytest.param(CountBudget(per_hour=4), [MINUTE] * 3, True, id="three of four in the hour"),
    pytest.param(CountBudget(per_hour=4), [MINUTE] * 4, False, id="four of four in the hour"),
    pytest.param(CountBudget(per_hour=4), [HOUR] * 9, True, id="an hour ago is another hour"),
    pytest.param(CountBudget(per_hour=4), [HOUR - SECOND] * 4, False, id="a second less is not"),
    pytest.param(CountBudget(per_minute=1), [30 * SECOND], False, id="one a minute"),
    pytest.param(CountBudget(per_minute=1), [MINUTE], True, id="a minute ago is another minute"),
    pytest.param(CountBudget(per_day=20), [2 * HOUR] * 19, True, id="nineteen of twenty in the day"),
    pytest.param(CountBudget(per_day=20), [11 * HOUR] * 20, False, id="twenty of twenty in the day"),
    pytest.param(CountBudget(per_day=20), [13 * HOUR] * 20, True, id="yesterday's do not count"),
    pytest.param(CountBudget(per_hour=0), [], False, id="a limit of zero admits nothing"),
    pytest.param(CountBudget(per_hour=4, per_day=2), [MINUTE] * 2, False, id="the strictest wins"),
    pytest.param(CountBudget(per_hour=1), [-HOUR], False, id="what was taken in the future, before our clock was set back"),
])  # fmt: skip
def test_a_limit_binds_when_it_is_used_up_and_not_before(budget, used, admitted):
    assert fits(budget, ask(), [debit(ago) for ago in used]) is admitted


@pytest.mark.parametrize(("running", "most"), [(0, 1), (1, 1), (2, 1), (3, 1), (5, 1), (10, 1), (20, 1), (39, 1), (40, 2), (1000, 50)])
def test_a_share_has_a_floor_so_that_small_fleets_can_work(running, most):
    budget = CountBudget(share_per_hour=0.05)

    assert fits(budget, ask(), [debit()] * (most - 1), running=running)
    assert not fits(budget, ask(), [debit()] * most, running=running)


def test_a_floor_of_zero_is_the_operators_word():
    assert not fits(CountBudget(share_per_hour=0.05, at_least=0), ask(), running=10)


def berlin(*when, fold=0):
    return datetime(*when, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold).astimezone(UTC)


@pytest.mark.parametrize(("zone", "now", "midnight"), [
    pytest.param("Europe/Berlin", berlin(2026, 3, 29, 23, 59), berlin(2026, 3, 29, 0, 0), id="a day of 23 hours"),
    pytest.param("Europe/Berlin", berlin(2026, 10, 25, 23, 59), berlin(2026, 10, 25, 0, 0), id="a day of 25 hours"),
    pytest.param("Europe/Berlin", berlin(2026, 10, 25, 2, 30, fold=1), berlin(2026, 10, 25, 0, 0), id="inside the repeated hour"),
    pytest.param("America/Havana", datetime(2026, 11, 1, 5, 30, tzinfo=UTC), datetime(2026, 11, 1, 4, 0, tzinfo=UTC), id="where midnight comes twice"),
    pytest.param("America/Havana", datetime(2026, 3, 8, 12, 0, tzinfo=UTC), datetime(2026, 3, 8, 5, 0, tzinfo=UTC), id="where there is no midnight"),
    pytest.param("Asia/Kathmandu", datetime(2026, 3, 4, 12, 0, tzinfo=UTC), datetime(2026, 3, 3, 18, 15, tzinfo=UTC), id="a zone of odd minutes"),
    pytest.param("UTC", NOW, NOW - 12 * HOUR, id="the shipped zone"),
])  # fmt: skip
def test_a_day_is_the_calendar_day_of_its_zone(zone, now, midnight):
    budget = CountBudget(per_day=1, zone=zone)

    assert not fits(budget, ask(), [debit(at=midnight)], now)
    assert fits(budget, ask(), [debit(at=midnight - SECOND)], now)


@pytest.mark.parametrize(("type_", "price"), [
    pytest.param("g5.xlarge", 1.0, id="its own price"),
    pytest.param("g5.12xlarge", 16.3, id="an unknown size is as dear as the dearest of its family"),
    pytest.param("g5", 16.3, id="a family by itself"),
    pytest.param("g6.xlarge", None, id="a family of which nothing is known"),
    pytest.param("", None, id="a type of no name"),
])  # fmt: skip
def test_the_price_of_a_type(type_, price):
    assert price_of(type_, PRICES) == price
    assert price_of(type_, {}) is None


@pytest.mark.parametrize(("usd", "spent", "admitted"), [
    pytest.param(98.3, [98.3], True, id="within"),
    pytest.param(98.3, [98.3] * 2, False, id="above"),
    pytest.param(100.0, [100.0], True, id="exactly"),
    pytest.param(None, [200.0], True, id="no price known: the limit does not apply"),
    pytest.param(1.0, [None] * 9, True, id="debits without a price took nothing from it"),
    pytest.param(float("nan"), [], False, id="a price that is no number fits nowhere"),
    pytest.param(201.0, [], False, id="one machine that is dearer than the limit"),
])  # fmt: skip
def test_dollars_an_hour_taken_down_are_limited(usd, spent, admitted):
    assert fits(CountBudget(usd_per_hour=200.0), ask(usd=usd), [debit(usd=each) for each in spent]) is admitted


@pytest.mark.parametrize(("count", "used", "admitted"), [
    pytest.param(4, 0, True, id="a gang as large as the limit"),
    pytest.param(4, 1, False, id="and one stop before it"),
    pytest.param(8, 0, True, id="a larger gang when the limit is unused"),
    pytest.param(8, 1, False, id="a larger gang when one was used"),
    pytest.param(1, 4, False, id="one machine is no gang"),
])  # fmt: skip
def test_a_gang_goes_whole_or_not_at_all(count, used, admitted):
    assert fits(CountBudget(per_hour=4), ask(count), [debit()] * used) is admitted
    assert (per_cycle(CountBudget(per_cycle=4), ask(count), Ask(used)) is None) is admitted


def test_a_larger_gang_waits_for_every_limit_it_exceeds():
    budget = CountBudget(per_hour=4, per_day=6)

    assert fits(budget, ask(8))
    assert not fits(budget, ask(8), [debit(2 * HOUR)])


def test_a_larger_gang_does_not_pass_a_limit_of_zero_nor_one_in_dollars():
    assert not fits(CountBudget(per_hour=0), ask(8))
    assert per_cycle(CountBudget(per_cycle=0), ask(8), Ask(0)) is not None
    assert not fits(CountBudget(usd_per_hour=100.0), ask(8, 786.4))


def test_what_this_cycle_admitted_is_used_too():
    assert not fits(CountBudget(per_hour=4), ask(), [debit()] * 2, taken=Ask(2))
    assert not fits(CountBudget(usd_per_hour=10.0), ask(usd=6.0), taken=Ask(1, 6.0))


def test_a_refusal_names_the_limit_and_what_is_used():
    assert "per hour: 4 of 4 used" in refusal(ask(), limits(CountBudget(per_hour=4), [debit()] * 4, NOW, 9))
    assert per_cycle(CountBudget(per_cycle=1), ask(), Ask(1)) == "per cycle: 1 of 1 used"


count_budgets = st.builds(
    CountBudget, per_minute=st.none() | st.integers(0, 3), per_hour=st.none() | st.integers(0, 6), per_day=st.none() | st.integers(0, 12),
    usd_per_hour=st.none() | st.sampled_from([5.0, 50.0]), share_per_hour=st.none() | st.sampled_from([0.05, 0.3]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Havana"]),
)  # fmt: skip
asks = st.tuples(st.integers(0, 50), st.integers(1, 9), st.sampled_from([None, 1.0, 7.5]))


@pytest.mark.parametrize("running", [1, 2, 3, 5, 10, 1000])
@settings(max_examples=250, deadline=None, database=None)
@given(budget=count_budgets, stream=st.lists(asks, max_size=40), begin=st.sampled_from([datetime(2026, 3, 28, 22, tzinfo=UTC), datetime(2026, 10, 31, 22, tzinfo=UTC)]))
def test_no_window_ever_holds_more_than_its_limit(running, budget, stream, begin):
    """A day and more of asks, a gang each: whatever was admitted, no window of any limit holds more, but for one larger gang alone."""
    groups, now = [], begin
    for minutes, count, usd in stream:
        now += timedelta(minutes=minutes)
        debits = [debit(at=at, usd=each) for at, n, each in groups for _ in range(n)]
        if fits(budget, Ask(count, None if usd is None else usd * count), debits, now, running):
            groups.append((now, count, usd))

    def check(most, inside):
        held = [n for _, n, _ in inside]
        assert sum(held) <= most or (len(held) == 1 and held[0] > 1 and most > 0)

    share = None if budget.share_per_hour is None else max(int(budget.share_per_hour * running + 1e-9), 1)
    for at, _, _ in groups:
        for most, span in ((budget.per_minute, MINUTE), (budget.per_hour, HOUR), (share, HOUR)):
            if most is not None:
                check(most, [g for g in groups if at - span < g[0] <= at])
        if budget.per_day is not None:
            day = at.astimezone(ZoneInfo(budget.zone)).date()
            check(budget.per_day, [g for g in groups if g[0].astimezone(ZoneInfo(budget.zone)).date() == day])
        if budget.usd_per_hour is not None:
            assert sum(n * (usd or 0.0) for t, n, usd in groups if at - HOUR < t <= at) <= budget.usd_per_hour


def test_an_ask_of_yesterday_leaves_today_alone():
    assert fits(CountBudget(per_day=1), ask(), [debit(DAY)])
