"""Two policies that match one machine hold it."""

from reaper.decide.guards.policies import two_policies
from tests.builders import facts, policy
from tests.decide.tables import check, rows


@rows([
    ("exactly one policy", facts(), None),
    ("no policy at all is not this guard's matter", facts(policies=()), None),
    ("two policies are both named", facts(policies=(policy("training"), policy("serving"))), "training and serving"),
    ("the same policy twice", facts(policies=(policy(), policy())), "both match"),
])  # fmt: skip
def test_two_policies_hold(given, expected):
    check(two_policies, given, expected)
