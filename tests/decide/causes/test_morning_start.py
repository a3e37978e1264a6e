"""The start that a schedule is owed: when it is nominated, and when not; and when machines that start together begin."""

from dataclasses import replace
from datetime import time, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reaper.decide.causes.morning_start import morning_start
from reaper.decide.engine import decide
from reaper.decide.facts import Morning
from reaper.decide.mornings import (
    LAST,
    LONGEST_BOOT,
    USUAL_BOOT,
    Waiting,
    begins,
    boot_of,
    in_order,
    place_of,
    ready_at,
)
from reaper.decide.planner import make
from reaper.model.decision import Action, Verdict
from reaper.model.kinds.instance import InstanceState
from reaper.model.policy import Budgets, CountBudget, Hours, Mode, Scope
from reaper.model.schedule import Schedule, Weekly
from tests.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    candidate,
    configuration,
    debit,
    decision,
    facts,
    policy,
    resource,
    shield,
    snooze,
    stopped,
)
from tests.decide.tables import rows

OFFICE = Hours(Schedule("office", "UTC", tuple(Weekly(day, time(8), 0, time(19)) for day in range(5))))
MORNING = Morning("office", "a-1", NOW + 5 * MINUTE, NOW - MINUTE, NOW + 11 * HOUR, "hours office begin at 12:05 UTC")


def lying(**changes):
    return facts(**({"instance": stopped(), "morning": MORNING, "quiet": None, "newest": None} | changes))


@rows([
    ("it is time", lying(), "hours office begin"),
    ("late is better than never", lying(morning=replace(MORNING, begins_at=NOW - 3 * HOUR, ready_at=NOW - 3 * HOUR)), "hours office begin"),
    ("too early", lying(morning=replace(MORNING, begins_at=NOW + MINUTE)), None),
    ("its hours are over", lying(morning=replace(MORNING, until=NOW)), None),
    ("nothing is owed", lying(morning=None), None),
    ("somebody touched it", lying(morning=replace(MORNING, refused="its type was changed")), None),
    ("another starts first", lying(morning=replace(MORNING, waits="head of the same job starts first")), None),
    ("it is still stopping", lying(instance=stopped(state=InstanceState.STOPPING)), None),
    ("it runs", lying(instance=stopped(state=InstanceState.RUNNING)), None),
    ("an action of ours is open", lying(attempt_open=True), None),
    ("outside the scope", lying(ineligible="outside [scope]"), None),
    ("another reaper's", lying(claimed_by="claimed by team-b"), None),
    ("two policies match", lying(policies=(policy(), policy("other"))), None),
    ("no policy matches", lying(policies=()), None),
    ("a snooze keeps it from a stop, and not from a start", lying(snoozes=(snooze(),)), "hours office begin"),
    ("so does a protection", lying(shields=(shield(),)), "hours office begin"),
])  # fmt: skip
def test_who_is_nominated(given, expected):
    answer, decided = morning_start(given, NOW), decide(given, NOW)

    assert (answer is None) == (expected is None)
    assert (decided.verdict is Verdict.ACT) == (expected is not None)
    if answer is not None:
        assert expected in answer.because
        assert (answer.action, decided.action) == (Action.START, Action.START)


def test_why_it_still_lies_there_is_told():
    assert "is started at" in decide(lying(morning=replace(MORNING, begins_at=NOW + MINUTE)), NOW).because
    assert "its type was changed" in decide(lying(morning=replace(MORNING, refused="its type was changed")), NOW).because


def waiting(native, place=LAST, group=None, boot=5 * MINUTE):
    return Waiting(resource(native), NOW, group or native, place, boot)


def test_each_begins_its_own_boot_and_a_cycle_before_it_has_to_be_ready():
    when = begins([waiting("i-1"), waiting("i-2", boot=8 * MINUTE)], CountBudget(), MINUTE)

    assert when == {resource("i-1"): NOW - 6 * MINUTE, resource("i-2"): NOW - 9 * MINUTE}


def test_whoever_comes_first_begins_before_the_others_by_how_long_they_take():
    when = begins([waiting("i-2", 2, "job"), waiting("i-1", 1, "job"), waiting("i-3", 2, "job", 7 * MINUTE), waiting("i-4", 1, "other")], CountBudget(), MINUTE)

    assert when[resource("i-2")] == NOW - 6 * MINUTE
    assert when[resource("i-1")] == NOW - 6 * MINUTE - 7 * MINUTE
    assert when[resource("i-4")] == NOW - 6 * MINUTE


@given(st.integers(1, 60), st.integers(1, 10))
def test_at_the_rate_of_the_budget_the_last_one_is_ready_in_time(count, rate):
    them = [waiting(f"i-{n:02}") for n in range(count)]
    when = begins(them, CountBudget(per_minute=rate), MINUTE)
    order = [one.resource for one in in_order(them)]

    for one in order:
        assert when[one] <= NOW - 6 * MINUTE
    for minute in range(60):
        moment = NOW - 66 * MINUTE + minute * MINUTE
        assert sum(moment <= at < moment + MINUTE for at in when.values()) <= rate
    assert [when[one] for one in order] == sorted(when.values())


def test_a_boot_is_as_long_as_the_longest_of_the_last_and_bounded():
    assert boot_of([]) == USUAL_BOOT
    assert boot_of([100.0, 400.0, 120.0]) == timedelta(seconds=400)
    assert boot_of([9e4]) == LONGEST_BOOT


def test_a_place_is_a_number_and_anything_else_comes_last():
    assert [place_of(tag) for tag in ("1", "-2", "1.5", "first", "nan", "inf", None, "")] == [1.0, -2.0, 1.5, LAST, LAST, LAST, LAST, LAST]


def test_it_is_owed_for_the_next_begin_by_what_the_schedule_says_now():
    evening = NOW.replace(hour=19)

    assert ready_at(OFFICE, evening) == evening + 13 * HOUR
    assert ready_at(OFFICE, evening + 2 * DAY) == evening + 4 * DAY + 13 * HOUR  # over a weekend
    assert ready_at(OFFICE, NOW) == NOW  # edited since: it would not have been stopped
    assert ready_at(replace(OFFICE, start_also=True), NOW) == evening + 13 * HOUR
    assert ready_at(Hours(Schedule("never-on", "UTC", ())), NOW) is None


def starting(native="i-01", place=0, **changes):
    return candidate(native, **({"instance": stopped(), "decision": decision(native=native, action=Action.START, cause="morning-start"), "mark": None, "place": place} | changes))


def plan(*them, start_debits=(), stopped_by=None, **changes):
    return make("p-1", NOW, configuration(**changes), them, (), 10, (), stopped_by, start_debits)


def test_starts_are_planned_in_their_order_at_their_own_rate_and_no_budget_of_stops_binds_them():
    tight = Budgets(stops=CountBudget(per_hour=0), starts=CountBudget(per_minute=2))
    its = plan(starting("i-1", 2), starting("i-2", 0), starting("i-3", 1), budgets=tight)

    assert len(its.actions) == 2
    assert [w.by for w in its.withheld] == ["budget"]
    assert plan(starting(), budgets=tight, start_debits=(debit(at=NOW), debit(at=NOW))).withheld != ()


@rows([
    ("observe", {"mode": Mode.OBSERVE}, "mode"),
    ("the verb is not named", {"scope": Scope(verbs=("stop",), given=True)}, "scope"),
    ("the kill switch", {"stopped_by": ("brake", "kill switch")}, "brake"),
    ("the newest configuration is refused, which takes nothing away", {"stopped_by": ("configuration", "line 3")}, None),
])  # fmt: skip
def test_what_withholds_a_start(given, expected):
    its = plan(starting(), **given)

    assert [w.by for w in its.withheld] == ([expected] if expected else [])
    assert len(its.actions) == (0 if expected else 1)


def test_a_policy_in_observe_starts_nothing():
    assert [w.by for w in plan(starting(policy=policy(mode=Mode.OBSERVE))).withheld] == ["mode"]
