"""What a policy says, as far as the machine can."""

import pytest

from reaper.decide.causes.gpu_idle import gpu_idle
from reaper.decide.planner import verb_missing
from reaper.decide.wanted import wanted
from reaper.model.decision import Action
from reaper.model.policy import Scope
from tests.builders import NOW, facts, instance, policy


@pytest.mark.parametrize(("action", "orelse", "hibernation", "expected"), [
    ("stop", "stop", True, Action.STOP),
    ("hibernate", "stop", True, Action.HIBERNATE),
    ("hibernate", "stop", False, Action.STOP),
    ("hibernate", "stop", None, Action.STOP),
    ("hibernate", "hold", False, Action.HIBERNATE),
    ("stop-and-snapshot", "stop", True, Action.STOP_AND_SNAPSHOT),
    ("terminate", "stop", None, Action.TERMINATE),
    ("report", "stop", True, None),
    ("a new word", "stop", True, None),
])  # fmt: skip
def test_the_action_that_causes_nominate(action, orelse, hibernation, expected):
    machine, terms = instance(hibernation=hibernation), policy(action=action, hibernate_else=orelse)
    finding = gpu_idle(facts(instance=machine, policies=(terms,)), NOW)

    assert wanted(terms, machine) is expected
    assert (finding.action if finding is not None else None) is expected


@pytest.mark.parametrize(("action", "verbs", "missing"), [
    (Action.STOP, ("stop",), None), (Action.HIBERNATE, ("stop",), None), (Action.HIBERNATE, ("snapshot",), "stop"),
    (Action.STOP_AND_SNAPSHOT, ("stop",), "snapshot"), (Action.STOP_AND_SNAPSHOT, ("stop", "snapshot"), None),
    (Action.TERMINATE, ("stop", "snapshot"), "terminate"), (Action.TERMINATE, ("stop", "terminate"), "snapshot"),
    (Action.TERMINATE, ("stop", "snapshot", "terminate"), None), (Action.START, ("stop",), "start"),
])  # fmt: skip
def test_each_action_needs_every_verb_that_it_uses(action, verbs, missing):
    assert verb_missing(action, Scope(verbs=verbs, given=True)) == missing
    assert verb_missing(action, Scope(verbs=verbs)) is not None  # no [scope] was written: nothing is
