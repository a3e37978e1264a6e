"""Set-up comes before the first kernel."""

from datetime import timedelta

from reaper.decide.guards.young import too_young
from tests.builders import HOUR, MINUTE, NOW, SECOND, facts, policy
from tests.decide.tables import check, rows


@rows([
    ("a day old", facts(), None),
    ("as old as the policy asks", facts(running_since=NOW - 30 * MINUTE), None),
    ("a second younger", facts(running_since=NOW - 30 * MINUTE + SECOND), "started 29m 59s ago"),
    ("started this moment", facts(running_since=NOW), "started 0s ago"),
    ("started in the future", facts(running_since=NOW + HOUR), "started 0s ago"),
    ("no start known", facts(running_since=None), "no start time known"),
    ("a policy that asks for nothing", facts(running_since=NOW, policies=(policy(min_age=timedelta(0)),)), None),
    ("no policy is another guard's matter", facts(policies=()), None),
])  # fmt: skip
def test_a_young_machine_is_held(given, expected):
    check(too_young, given, expected)
