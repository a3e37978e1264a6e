"""Too many machines that turn idle at once: the fleet is probably not what changed."""

from datetime import timedelta

import pytest

from reaper.decide.breaker import Turn, jump, turned
from reaper.model.policy import BreakerTerms
from reaper.model.signal import Activity
from tests.builders import HOUR, MINUTE, NOW, SECOND, resource

BUSY, IDLE, UNKNOWN = Activity.BUSY, Activity.IDLE, Activity.UNKNOWN
TERMS = BreakerTerms(share=0.25, within=15 * MINUTE, at_least=3)
TERM = 3 * HOUR


def turn(n, was=BUSY, now=IDLE, ago=MINUTE, agent="1.0"):
    return Turn(resource(f"i-{n:03}"), NOW - ago, was, now, agent)


def fleet(fell, of, **changes):
    """``fell`` machines that turned a minute ago among ``of``; the rest has been busy for a day."""
    return [turn(n, **changes) for n in range(fell)] + [turn(n, UNKNOWN, BUSY, 24 * HOUR) for n in range(fell, of)]


@pytest.mark.parametrize(("turns", "opens"), [
    pytest.param(fleet(3, 3), True, id="all of three"),
    pytest.param(fleet(2, 2), False, id="a fleet of two has none"),
    pytest.param(fleet(1, 1), False, id="a fleet of one has none"),
    pytest.param([], False, id="no fleet"),
    pytest.param(fleet(2, 8), False, id="a quarter, and fewer than the least number"),
    pytest.param(fleet(3, 12), True, id="exactly a quarter"),
    pytest.param(fleet(3, 13), False, id="less than a quarter"),
    pytest.param(fleet(250, 1000), True, id="a quarter of a thousand"),
    pytest.param(fleet(249, 1000), False, id="one less of a thousand"),
    pytest.param(fleet(6, 6, now=UNKNOWN), True, id="all fell silent"),
    pytest.param(fleet(6, 6, was=UNKNOWN), False, id="idle at first sight, after a restart of ours"),
    pytest.param(fleet(6, 6, was=IDLE, now=UNKNOWN), False, id="idle machines that fall silent have nothing to lose"),
    pytest.param(fleet(6, 6, was=IDLE, now=BUSY), False, id="all began to work"),
    pytest.param(fleet(6, 6, ago=15 * MINUTE), True, id="just within the time"),
    pytest.param(fleet(6, 6, ago=15 * MINUTE + SECOND), False, id="longer ago"),
    pytest.param([turn(n, ago=n * 6 * MINUTE) for n in range(10)], True, id="three of ten within the time"),
    pytest.param([turn(n, ago=n * 8 * MINUTE) for n in range(10)], False, id="one after the other, as jobs end"),
    pytest.param([turn(n, agent="2.0") for n in range(3)] + fleet(0, 97), True, id="all agents of one version in a large fleet"),
    pytest.param([turn(n, agent="2.0") for n in range(2)] + fleet(0, 97), False, id="two agents of one version are too few"),
    pytest.param([turn(n, agent=None) for n in range(3)] + fleet(0, 97), False, id="agents of no known version are no group"),
])  # fmt: skip
def test_the_breaker_opens(turns, opens):
    assert (jump(turns, TERMS, NOW, TERM) is not None) is opens


def test_without_terms_there_is_no_breaker():
    assert jump(fleet(9, 9), None, NOW, TERM) is None


def test_it_blocks_the_machines_of_the_jump_for_their_term_and_no_others():
    found = jump(fleet(3, 9), TERMS, NOW, TERM)

    assert found.machines == tuple(resource(f"i-{n:03}") for n in range(3))
    assert found.blocks(resource("i-000"), NOW + TERM - SECOND)
    assert not found.blocks(resource("i-000"), NOW + TERM)
    assert not found.blocks(resource("i-008"), NOW)
    assert "3 of 9" in found.because


def test_two_versions_that_fall_together_do_not_hide_one_another():
    turns = [turn(n, agent="2.0") for n in range(3)] + [turn(n, agent="3.0") for n in range(3, 6)] + fleet(0, 100)[6:]
    found = jump(turns, TERMS, NOW, TERM)

    assert len(found.machines) == 6
    assert "2.0" in found.because
    assert "3.0" in found.because


ONE = resource("i-001")


def after(*activities, agent="1.0"):
    """The turn of one machine after these activities, a minute each, the last of them now."""
    turns = {}
    for n, activity in enumerate(activities):
        turns = turned(turns, {ONE: (activity, agent)}, NOW - (len(activities) - 1 - n) * MINUTE)
    return turns[ONE]


@pytest.mark.parametrize(("activities", "was", "at"), [
    pytest.param((IDLE,), UNKNOWN, 0, id="first sight is no turn from busy"),
    pytest.param((BUSY, IDLE), BUSY, 0, id="busy to idle"),
    pytest.param((BUSY, IDLE, IDLE, IDLE), BUSY, 2, id="it turned when it turned"),
    pytest.param((BUSY, UNKNOWN, UNKNOWN, IDLE), BUSY, 2, id="silent on the way to idle, as when agents are restarted"),
    pytest.param((BUSY, IDLE, UNKNOWN, IDLE), BUSY, 2, id="back and forth without work is one turn"),
    pytest.param((BUSY, IDLE, BUSY), IDLE, 0, id="work began again"),
    pytest.param((IDLE, UNKNOWN), UNKNOWN, 1, id="never busy"),
    pytest.param((BUSY, IDLE, BUSY, IDLE), BUSY, 0, id="the newest of two turns"),
])  # fmt: skip
def test_a_turn_is_counted_from_the_last_work(activities, was, at):
    found = after(*activities)

    assert (found.was, found.now, NOW - found.at) == (was, activities[-1], timedelta(minutes=at))


def test_agents_that_restart_one_by_one_and_come_back_blind_open_it():
    """A new driver reads zero: each falls silent for three minutes and then says idle, four minutes apart."""
    turns, opened = {}, None
    for minute in range(40):
        said = {}
        for n in range(8):
            since = minute - 4 * n
            said[resource(f"i-{n}")] = (BUSY if since < 0 else UNKNOWN if since < 3 else IDLE, "1.0")
        moment = NOW + minute * MINUTE
        turns = turned(turns, said, moment)
        opened = opened or jump(tuple(turns.values()), TERMS, moment, TERM)

    assert opened is not None


def test_machines_that_are_gone_are_no_part_of_the_fleet():
    turns = turned({}, {resource("i-1"): (BUSY, None), resource("i-2"): (BUSY, None)}, NOW)

    assert set(turned(turns, {resource("i-2"): (IDLE, None)}, NOW)) == {resource("i-2")}


def test_an_upgraded_agent_counts_under_its_new_version():
    turns = turned({}, {ONE: (BUSY, "1.0")}, NOW)
    turns = turned(turns, {ONE: (BUSY, "2.0")}, NOW + MINUTE)

    assert turns[ONE].agent == "2.0"
    assert turned(turns, {ONE: (BUSY, None)}, NOW)[ONE].agent == "2.0"
