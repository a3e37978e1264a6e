"""It starts only what it stopped itself and nobody touched since."""

import pytest

from reaper.decide.undo import refuse_start
from reaper.model.decision import Action
from reaper.model.kinds.instance import InstanceState
from reaper.model.plan import Outcome
from tests.builders import DAY, MINUTE, NOW, SECOND, attempt, instance, stopped

OURS = attempt()


@pytest.mark.parametrize("current", [
    pytest.param(stopped(), id="as we left it"),
    pytest.param(stopped(tags={"idle-reaper:stopped": "yes"}), id="with a tag of our own"),
    pytest.param(stopped(changed_at=NOW - MINUTE + SECOND), id="its transition time rounded"),
])  # fmt: skip
def test_what_nobody_touched_may_be_started(current):
    assert refuse_start(OURS, current) is None


@pytest.mark.parametrize(("done", "current", "why"), [
    pytest.param(attempt(action=Action.START), stopped(), "not a stop", id="it was a start"),
    pytest.param(attempt(action=Action.TERMINATE), stopped(), "not a stop", id="it was a termination"),
    *(pytest.param(attempt(outcome), stopped(), "not carried out", id=f"the stop is {outcome}") for outcome in (None, *Outcome) if outcome is not Outcome.DONE),
    pytest.param(attempt(after=None), stopped(), "not carried out", id="what it left is not known"),
    *(pytest.param(OURS, stopped(state=state), f"the machine is {state}", id=f"it is {state}") for state in InstanceState if state is not InstanceState.STOPPED),
    pytest.param(OURS, stopped(type="g5.2xlarge"), "type was changed", id="somebody gave it another type"),
    pytest.param(OURS, stopped(volumes=("vol-1", "vol-2")), "disks", id="a disk was attached"),
    pytest.param(OURS, stopped(volumes=()), "disks", id="its disk was taken"),
    pytest.param(OURS, stopped(interfaces=("eni-2",)), "interfaces", id="another interface"),
    pytest.param(OURS, stopped(tags={"owner": "bob"}), "tags", id="somebody tagged it"),
    pytest.param(OURS, stopped(tags={"Idle-Reaper:stopped": "yes"}), "tags", id="a tag that only looks like ours"),
    pytest.param(attempt(after=stopped(volumes=())), stopped(volumes=()), "disks", id="its disk was taken before our stop was read back"),
    pytest.param(attempt(after=stopped(tags={"owner": "bob"})), stopped(tags={"owner": "bob"}), "tags", id="tagged before our stop was read back"),
    pytest.param(OURS, stopped(launched_at=NOW - 2 * MINUTE), "started and stopped again", id="started and stopped by somebody else"),
    pytest.param(OURS, stopped(launched_at=None), "started and stopped again", id="its launch is not told any more"),
    pytest.param(OURS, stopped(changed_at=NOW), "started and stopped again", id="another transition than ours"),
    pytest.param(OURS, stopped(changed_at=None), "started and stopped again", id="its transition is not told any more"),
    pytest.param(attempt(after=stopped(changed_at=None)), stopped(), "started and stopped again", id="its transition was not told and is now"),
])  # fmt: skip
def test_what_somebody_touched_is_left_alone(done, current, why):
    assert why in refuse_start(done, current)


def test_where_the_cloud_tells_no_times_the_rest_has_to_do():
    machine = instance(launched_at=None)
    left = stopped(machine, changed_at=None)

    assert refuse_start(attempt(after=left), left) is None


def test_a_stop_of_long_ago_may_still_be_undone():
    left = stopped(changed_at=NOW - 40 * DAY)

    assert refuse_start(attempt(after=left, ended_ago=40 * DAY), left) is None
