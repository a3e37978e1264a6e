"""Termination protection bars ending a machine and not stopping it; what cannot be read protects."""

from reaper.decide.guards.termination import termination_protected
from reaper.model.kinds.instance import Protections
from tests.builders import facts, policy
from tests.decide.tables import check, rows

ENDS = (policy(action="terminate"),)


@rows([
    ("a stop is not barred", facts(protections=Protections(False, termination_protected=True)), None),
    ("off", facts(policies=ENDS, protections=Protections(False, termination_protected=False)), None),
    ("on", facts(policies=ENDS, protections=Protections(False, termination_protected=True)), "termination protection is on"),
    ("not readable", facts(policies=ENDS), "not readable"),
    ("not read yet, which another rule holds", facts(policies=ENDS, protections=None), None),
])  # fmt: skip
def test_what_may_not_be_ended_is_held(given, expected):
    check(termination_protected, given, expected)
