"""Quiet for the policy's term with nothing held nominates a stop."""

import pytest

from reaper.decide.causes.gpu_idle import gpu_idle
from reaper.model.decision import Action, FindingKind
from reaper.model.kinds.instance import InstanceState
from reaper.model.policy import IdleTerms
from tests.builders import HOUR, IDLE_FOR, NOW, SECOND, facts, held_facts, instance, observation, policy, quiet


@pytest.mark.parametrize("given", [
    pytest.param(facts(), id="quiet for four hours"),
    pytest.param(facts(quiet=quiet(IDLE_FOR)), id="quiet for exactly the term"),
    pytest.param(facts(quiet=quiet(20 * HOUR, unheld_for=IDLE_FOR)), id="what was held is gone for the term"),
    pytest.param(facts(quiet=quiet(until=NOW - HOUR)), id="silence pauses and does not forget"),
    pytest.param(facts(instance=instance(gpus=None), newest=None), id="the count is not known and a device was seen"),
    pytest.param(facts(instance=instance(gpus=8), quiet=quiet(devices=0)), id="its GPUs cannot be read just now"),
])  # fmt: skip
def test_an_idle_machine_is_nominated(given):
    found = gpu_idle(given, NOW)

    assert found is not None
    assert (found.kind, found.action, found.rule) == (FindingKind.NOMINATE, Action.STOP, "gpu-idle")
    assert found.value
    assert found.limit == "2h"
    assert found.age == NOW - given.quiet.until


@pytest.mark.parametrize("given", [
    pytest.param(facts(quiet=quiet(IDLE_FOR - SECOND)), id="a second too short"),
    pytest.param(facts(quiet=None), id="no verified window"),
    pytest.param(facts(policies=()), id="no policy"),
    pytest.param(facts(policies=(policy(action="report"),)), id="a policy that reports"),
    pytest.param(facts(policies=(policy(action="Stop"),)), id="an action that is not known"),
    pytest.param(held_facts(), id="something is held"),
    pytest.param(facts(quiet=quiet(HOUR, unheld_for=20 * HOUR)), id="unheld for long and busy an hour ago"),
    pytest.param(facts(quiet=quiet(-HOUR)), id="quiet since a moment to come"),
    pytest.param(facts(instance=instance(gpus=0), quiet=quiet(devices=0), newest=observation(gpus=())), id="a type without GPUs"),
    pytest.param(facts(instance=instance(gpus=None), quiet=quiet(devices=0), newest=None), id="neither a count nor a device"),
    pytest.param(facts(policies=(policy(idle=IdleTerms(idle_for=5 * HOUR)),)), id="a longer term"),
    *(pytest.param(facts(instance=instance(state=state)), id=f"it is {state}") for state in InstanceState if state is not InstanceState.RUNNING),
])  # fmt: skip
def test_everything_else_is_not(given):
    assert gpu_idle(given, NOW) is None
