"""A host whose orchestrator lives may be given work at any moment."""

import pytest

from reaper.decide.guards.orchestrator import orchestrator
from tests.builders import facts, observation, policy
from tests.decide.tables import check, rows

IGNORE = (policy(orchestrator="ignore"),)


@rows([
    ("none runs", facts(), None),
    ("could not look", facts(newest=observation(orchestrators=None)), "not readable"),
    ("one runs and the policy ignores it", facts(newest=observation(orchestrators=("slurmd",)), policies=IGNORE), None),
    ("could not look and the policy ignores it", facts(newest=observation(orchestrators=None), policies=IGNORE), None),
    ("a word of policy that is not known holds", facts(newest=observation(orchestrators=("slurmd",)), policies=(policy(orchestrator="Ignore"),)), "slurmd"),
    ("no report is another guard's matter", facts(newest=None), None),
    ("no policy is another guard's matter", facts(policies=()), None),
])  # fmt: skip
def test_a_living_orchestrator_holds(given, expected):
    check(orchestrator, given, expected)


@pytest.mark.parametrize("name", ["slurmd", "kubelet", "raylet", "nomad"])
def test_each_orchestrator_holds_its_host(name):
    check(orchestrator, facts(newest=observation(orchestrators=(name,))), name)
