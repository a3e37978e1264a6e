"""Between two states, or after a try of ours that is open or failed, nothing is tried."""

import pytest

from reaper.decide.guards.transition import in_transition
from reaper.model.kinds.instance import InstanceState
from tests.builders import MINUTE, NOW, facts, instance
from tests.decide.tables import check, rows


@rows([
    ("running", facts(), None),
    ("an action of ours is open", facts(attempt_open=True), "not closed yet"),
    ("the last try failed", facts(back_off_until=NOW + MINUTE, back_off_because="UnauthorizedOperation"), "UnauthorizedOperation"),
    ("the last try failed for no reason given", facts(back_off_until=NOW + MINUTE), "no reason given"),
    ("the time after a failed try is over", facts(back_off_until=NOW, back_off_because="x"), None),
])  # fmt: skip
def test_a_machine_in_transition_is_held(given, expected):
    check(in_transition, given, expected)


@pytest.mark.parametrize("state", [state for state in InstanceState if state is not InstanceState.RUNNING], ids=str)
def test_only_a_running_machine_passes(state):
    check(in_transition, facts(instance=instance(state=state)), f"the machine is {state}")
