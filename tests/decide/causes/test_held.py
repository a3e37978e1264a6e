"""Quiet while something is held on the GPUs nominates after a longer term of its own."""

import pytest

from reaper.decide.causes.gpu_idle import gpu_idle
from reaper.decide.causes.held import held
from reaper.model.decision import Action, FindingKind
from reaper.model.kinds.instance import InstanceState
from tests.builders import HELD_FOR, HOUR, IDLE_FOR, NOW, SECOND, facts, held_facts, instance, policy, quiet

ZERO = 0 * SECOND


@pytest.mark.parametrize("given", [
    pytest.param(held_facts(), id="a notebook left open for twelve hours"),
    pytest.param(held_facts(quiet=quiet(HELD_FOR, unheld_for=ZERO)), id="exactly the longer term"),
    pytest.param(held_facts(quiet=quiet(12 * HOUR, unheld_for=IDLE_FOR - SECOND)), id="let go of less than the short term ago"),
])  # fmt: skip
def test_a_held_machine_is_nominated_after_its_longer_term(given):
    found = held(given, NOW)

    assert found is not None
    assert (found.kind, found.action, found.rule, found.limit) == (FindingKind.NOMINATE, Action.STOP, "held", "10h")
    assert gpu_idle(given, NOW) is None


@pytest.mark.parametrize("given", [
    pytest.param(held_facts(quiet=quiet(HELD_FOR - SECOND, unheld_for=ZERO)), id="a second too short"),
    pytest.param(held_facts(quiet=quiet(3 * HOUR, unheld_for=ZERO)), id="a loaded model that was asked three hours ago"),
    pytest.param(facts(), id="nothing is held, the other cause has it"),
    pytest.param(held_facts(quiet=None), id="no verified window"),
    pytest.param(held_facts(policies=()), id="no policy"),
    pytest.param(held_facts(policies=(policy(action="report"),)), id="a policy that reports"),
    pytest.param(held_facts(instance=instance(gpus=0), quiet=quiet(12 * HOUR, unheld_for=ZERO, devices=0)), id="a type without GPUs"),
    *(pytest.param(held_facts(instance=instance(state=state)), id=f"it is {state}") for state in InstanceState if state is not InstanceState.RUNNING),
])  # fmt: skip
def test_everything_else_is_not(given):
    assert held(given, NOW) is None
