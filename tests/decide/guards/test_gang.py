"""Machines of one job: all idle, or none is."""

import pytest

from reaper.decide.guards.gang import gang
from reaper.model.signal import State
from tests.builders import HOUR, MINUTE, facts, member
from tests.decide.tables import check, rows


def of_a_job(*members, **changes):
    return facts(gang="tag:job=a", members=members, **changes)


@rows([
    ("no job", facts(), None),
    ("alone in its job", of_a_job(), None),
    ("every member idle for the term", of_a_job(member("i-02"), member("i-03")), None),
    ("a member that holds memory counts as idle", of_a_job(member(state=State.HELD)), None),
    ("the last of many members is busy", of_a_job(*(member(f"i-{n}") for n in range(200)), member("i-last", State.WORKING)), "i-last"),
    ("a member quiet for less than the term", of_a_job(member(quiet_for=2 * HOUR - MINUTE)), "quiet for 1h 59m"),
    ("a member whose quiet time is not known", of_a_job(member(quiet_for=None)), "no time that is known"),
    ("a member quiet since a moment to come", of_a_job(member(quiet_for=-HOUR)), "quiet for 0s"),
    ("a place that could not be listed", of_a_job(member(), gang_incomplete="us-east-1 throttled"), "members may be missing"),
    ("an incomplete listing without any member", of_a_job(gang_incomplete="us-east-1 throttled"), "us-east-1"),
])  # fmt: skip
def test_a_job_is_judged_whole(given, expected):
    check(gang, given, expected)


@pytest.mark.parametrize("state", [state for state in State if state.activity.value != "idle"], ids=str)
def test_a_member_that_is_busy_or_unknown_holds_all(state):
    check(gang, of_a_job(member(state=state)), f"i-02 of the same job is {state}")
