"""A policy that wants a machine hibernated and nothing else holds what cannot be."""

from reaper.decide.guards.hibernation import cannot_hibernate
from tests.builders import facts, instance, policy
from tests.decide.tables import check, rows

ONLY = (policy(action="hibernate", hibernate_else="hold"),)


@rows([
    ("a policy that stops", facts(), None),
    ("launched for it", facts(instance=instance(hibernation=True), policies=ONLY), None),
    ("a stop will do", facts(policies=(policy(action="hibernate"),)), None),
    ("not launched for it", facts(instance=instance(hibernation=False), policies=ONLY), "not launched for hibernation"),
    ("not known", facts(policies=ONLY), "not launched for hibernation"),
])  # fmt: skip
def test_what_cannot_hibernate_is_held_where_a_stop_will_not_do(given, expected):
    check(cannot_hibernate, given, expected)
