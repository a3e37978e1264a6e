"""What is admitted, what is withheld, and by what."""

import pytest

from reaper.decide.breaker import Jump
from reaper.decide.planner import make
from reaper.model.decision import Verdict
from reaper.model.kinds.instance import InstanceState
from reaper.model.mark import Stage
from reaper.model.policy import Budgets, CountBudget, Mode, Scope
from tests.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    candidate,
    configuration,
    debit,
    decision,
    instance,
    mark,
    policy,
    resource,
)  # fmt: skip


def plan(*candidates, debits=(), jumps=(), running=100, stopped_by=None, **changes):
    return make("p-1", NOW, configuration(**changes), candidates, debits, running, jumps, stopped_by)


def names(its):
    return [action.resource.native for action in its.actions]


def withheld(its):
    return {w.resource.native: w.by for w in its.withheld}


def stops(**limits):
    return Budgets(stops=CountBudget(**limits))


JUMP = Jump((resource("i-01"),), NOW - HOUR, NOW + HOUR, "3 of 9 turned idle")


def test_one_that_is_due_and_was_looked_at_is_planned():
    its = plan(candidate(), prices={"g5.xlarge": 1.5})

    assert [(a.resource, a.action, a.cause, a.policy, a.usd_per_hour) for a in its.actions] == [(resource(), "stop", "gpu-idle", "training", 1.5)]
    assert its.withheld == ()


@pytest.mark.parametrize("its", [
    pytest.param(candidate(mark=None), id="without a mark"),
    pytest.param(candidate(mark=mark(Stage.NOMINATED)), id="nominated only"),
    pytest.param(candidate(mark=mark(Stage.WARNED)), id="warned only"),
    pytest.param(candidate(look="no verified report"), id="before its last look"),
    pytest.param(candidate(decision=decision(Verdict.WAIT)), id="on hold"),
    pytest.param(candidate(decision=decision(Verdict.KEEP)), id="protected"),
    *(pytest.param(candidate(instance=instance(state=state)), id=f"it is {state}") for state in InstanceState if not state.counts),
])  # fmt: skip
def test_one_that_is_not_ready_is_neither_planned_nor_withheld(its):
    made = plan(its)

    assert (made.actions, made.withheld) == ((), ())


@pytest.mark.parametrize(("its", "changes", "by", "because"), [
    pytest.param(candidate(), {"mode": Mode.OBSERVE}, "mode", "mode is observe", id="the ceiling is observe"),
    pytest.param(candidate(policy=policy(mode=Mode.OBSERVE)), {}, "mode", "policy training is in observe", id="its policy is in observe"),
    pytest.param(candidate(policy=None), {}, "mode", "in observe", id="its policy is gone"),
    pytest.param(candidate(), {"scope": Scope(verbs=("start",), given=True)}, "scope", "do not name stop", id="the verb is not listed"),
    pytest.param(candidate(), {"scope": Scope(verbs=("stop",))}, "scope", "do not name stop", id="no scope was written"),
    pytest.param(candidate(), {"stopped_by": ("brake", "kill switch")}, "brake", "kill switch", id="the kill switch"),
    pytest.param(candidate(), {"stopped_by": ("brake", "")}, "brake", "", id="a kill switch without a reason"),
    pytest.param(candidate(), {"stopped_by": ("configuration", "the newest configuration is refused: line 3")}, "configuration", "refused", id="the newest configuration is refused"),
    pytest.param(candidate(), {"jumps": (JUMP,)}, "breaker", "3 of 9", id="the breaker is open for it"),
    pytest.param(candidate(), {"budgets": stops(per_hour=1), "debits": [debit()]}, "budget", "per hour: 1 of 1", id="the hour is used up"),
    pytest.param(candidate(), {"budgets": stops(per_cycle=0)}, "budget", "per cycle", id="nothing may go in a cycle"),
    pytest.param(candidate(), {"budgets": stops(usd_per_hour=1.0), "prices": {"g5.48xlarge": 16.0}}, "budget", "dollars",
                 id="an unknown price counts as the dearest of its family"),
])  # fmt: skip
def test_what_withholds_is_named(its, changes, by, because):
    made = plan(its, **changes)

    assert made.actions == ()
    assert [(w.by, w.policy) for w in made.withheld] == [(by, "training")]
    assert because in made.withheld[0].because


@pytest.mark.parametrize("jump", [
    pytest.param(Jump((resource("i-02"),), NOW - HOUR, NOW + HOUR, "x"), id="of other machines"),
    pytest.param(Jump((resource("i-01"),), NOW - DAY, NOW, "x"), id="that is over"),
])  # fmt: skip
def test_a_breaker_of_no_concern_does_not_bind(jump):
    assert names(plan(candidate(), jumps=(jump,))) == ["i-01"]


def test_those_that_became_due_first_go_first():
    late, early, middle = candidate("i-01", due_ago=MINUTE), candidate("i-02", due_ago=9 * MINUTE), candidate("i-03", due_ago=5 * MINUTE)
    made = plan(late, early, middle, budgets=stops(per_hour=2))

    assert names(made) == ["i-02", "i-03"]
    assert withheld(made) == {"i-01": "budget"}


def test_the_order_of_the_listing_does_not_matter():
    several = [candidate(f"i-{n:02}") for n in range(9)]

    assert names(plan(*several, budgets=stops(per_hour=4))) == names(plan(*reversed(several), budgets=stops(per_hour=4)))


def gang(*natives, waiting=(), **changes):
    return [candidate(n, gang="tag:job=a", **changes) for n in natives] + [candidate(n, gang="tag:job=a", look="no verified report") for n in waiting]


def test_a_gang_is_admitted_whole():
    made = plan(*gang("i-01", "i-02", "i-03"), budgets=stops(per_hour=3))

    assert names(made) == ["i-01", "i-02", "i-03"]
    assert {a.gang for a in made.actions} == {"tag:job=a"}


def test_a_gang_that_does_not_fit_is_withheld_whole_and_lets_a_smaller_one_through():
    made = plan(candidate("i-00", due_ago=HOUR), *gang("i-01", "i-02", "i-03"), candidate("i-09", due_ago=MINUTE), budgets=stops(per_hour=3))

    assert names(made) == ["i-00", "i-09"]
    assert withheld(made) == {"i-01": "budget", "i-02": "budget", "i-03": "budget"}


def test_a_gang_larger_than_the_limit_goes_when_it_is_unused_and_nothing_after_it():
    made = plan(*gang("i-01", "i-02", "i-03", due_ago=HOUR), candidate("i-09"), budgets=stops(per_hour=2))

    assert names(made) == ["i-01", "i-02", "i-03"]
    assert withheld(made) == {"i-09": "budget"}


@pytest.mark.parametrize("other", [
    pytest.param({"waiting": ["i-02"]}, id="waits for its last look"),
])  # fmt: skip
def test_a_gang_of_which_one_is_not_ready_stays(other):
    made = plan(*gang("i-01", **other))

    assert made.actions == ()
    assert withheld(made) == {"i-01": "gang"}
    assert "i-02 (no verified report)" in made.withheld[0].because


@pytest.mark.parametrize("state", list(InstanceState), ids=str)
def test_members_that_cannot_work_any_more_do_not_count(state):
    other = candidate("i-02", gang="tag:job=a", instance=instance("i-02", state=state), mark=None, decision=decision(Verdict.KEEP, "i-02"))
    made = plan(*gang("i-01"), other)

    assert names(made) == ([] if state.counts else ["i-01"])


def test_a_breaker_open_for_one_member_keeps_the_gang():
    made = plan(*gang("i-01", "i-02"), jumps=(JUMP,))

    assert withheld(made) == {"i-01": "breaker", "i-02": "breaker"}


def test_one_that_is_withheld_takes_nothing_from_the_budget():
    made = plan(candidate("i-01", due_ago=HOUR, policy=policy(mode=Mode.OBSERVE)), candidate("i-02"), budgets=stops(per_hour=1))

    assert names(made) == ["i-02"]


def test_the_dollars_of_one_plan_add_up():
    made = plan(candidate("i-01", due_ago=HOUR), candidate("i-02"), budgets=stops(usd_per_hour=10.0), prices={"g5.xlarge": 6.0})

    assert names(made) == ["i-01"]
    assert withheld(made) == {"i-02": "budget"}


def test_a_gang_is_priced_whole():
    made = plan(*gang("i-01", "i-02"), budgets=stops(usd_per_hour=10.0), prices={"g5.xlarge": 6.0})

    assert withheld(made) == {"i-01": "budget", "i-02": "budget"}


def test_the_plan_says_where_the_dollar_budget_does_not_apply():
    made = plan(candidate(), budgets=stops(usd_per_hour=10.0))

    assert names(made) == ["i-01"]
    assert made.notes == ("the dollar budget does not apply to types without a price: g5.xlarge",)


def test_the_plan_says_what_stands_in_the_way_of_everything():
    made = plan(jumps=(JUMP,), stopped_by=("brake", "kill switch"))

    assert made.notes == ("breaker open: 3 of 9 turned idle", "nothing is taken away: kill switch")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 10, 1000])
def test_no_fleet_is_taken_down_at_once_and_none_is_stuck(size):
    shipped = CountBudget(per_hour=4, per_day=20, share_per_hour=0.05)
    made = plan(*(candidate(f"i-{n:04}") for n in range(size)), budgets=Budgets(stops=shipped), running=size)

    assert len(made.actions) == (4 if size == 1000 else 1)
    assert len(made.withheld) == size - len(made.actions)
