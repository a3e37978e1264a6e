"""A machine that is starved for long is told of, once a day."""

from datetime import timedelta

from reaper.decide.waste import Waste
from reaper.service.starved import AFTER, AGAIN_AFTER, StarvedWatch
from tests.builders import MINUTE, NOW, resource

ID, OTHER = resource("i-01"), resource("i-02")
WASTE = Waste("pid-1", 0.62, False, 14.88)


def test_starved_for_long_is_told_once_a_day():
    watch = StarvedWatch()
    told = [n for n in range(60 * 48) if watch.step({ID: WASTE}, NOW + n * MINUTE)]

    assert told == [AFTER // MINUTE, (AFTER + AGAIN_AFTER) // MINUTE]


def test_starved_now_and_then_is_not_told():
    watch = StarvedWatch()

    assert not any(watch.step({ID: WASTE} if n % 20 else {}, NOW + n * MINUTE) for n in range(200))


def test_one_that_flaps_after_it_was_told_is_not_told_again():
    watch = StarvedWatch()
    told = [n for n in range(600) if watch.step({ID: WASTE} if n % 50 else {}, NOW + n * MINUTE)]

    assert len(told) == 1


def test_machines_are_told_of_each_by_itself_and_forgotten_when_they_are_gone():
    watch = StarvedWatch()
    watch.step({ID: WASTE}, NOW)
    watch.step({ID: WASTE, OTHER: WASTE}, NOW + 10 * MINUTE)

    assert watch.step({ID: WASTE, OTHER: WASTE}, NOW + AFTER) == (ID,)
    assert watch.step({ID: WASTE, OTHER: WASTE}, NOW + AFTER + 10 * MINUTE) == (OTHER,)
    watch.step({}, NOW + timedelta(days=3))
    assert (watch._since, watch._said) == ({}, {})
