"""Quiet while something is held on the GPUs nominates after a longer term of its own."""

from dataclasses import replace

import pytest

from reaper.decide.causes.gpu_idle import gpu_idle
from reaper.decide.causes.held import held
from reaper.model.decision import Action, FindingKind
from reaper.model.kinds.instance import InstanceState
from reaper.model.signal import Job
from tests.builders import (
    HELD_FOR,
    HOUR,
    IDLE_FOR,
    NOW,
    SECOND,
    facts,
    held_facts,
    instance,
    observation,
    policy,
    quiet,
)

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


BETWEEN = Job("session-4", ended_age_s=9 * 3600.0, launcher="sweep.sh")


def between_trials(quiet_for, *jobs):
    """Nothing on its GPUs, and a launcher that could start the next trial."""
    return facts(quiet=quiet(quiet_for), newest=observation(jobs=jobs or (BETWEEN,)))


def test_a_launcher_between_two_of_its_jobs_is_waited_for_as_long_as_memory_on_the_gpus():
    early, late = between_trials(HELD_FOR - SECOND), between_trials(HELD_FOR)
    found = held(late, NOW)

    assert (gpu_idle(early, NOW), held(early, NOW), gpu_idle(late, NOW)) == (None, None, None)
    assert found is not None
    assert "sweep.sh lives, which could start its next job" in found.because
    assert (early.span, late.span) == (HELD_FOR, HELD_FOR)


@pytest.mark.parametrize("job", [
    pytest.param(replace(BETWEEN, launcher=None, launcher_known=True), id="its launcher is gone"),
    pytest.param(replace(BETWEEN, launcher=None, launcher_known=False), id="whether one lives cannot be seen, which memory on the GPUs would show"),
    pytest.param(replace(BETWEEN, ended_age_s=None, launcher_known=True), id="its processes are on a GPU, and that is told by the GPU"),
])  # fmt: skip
def test_without_a_living_launcher_of_an_ended_job_the_short_term_stands(job):
    assert gpu_idle(between_trials(IDLE_FOR, job), NOW) is not None


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
