"""You may not get it back."""

from reaper.decide.guards.scarce import scarce
from tests.builders import facts, instance, policy
from tests.decide.tables import check, rows

TERMS = (policy(scarce_types=("p5.48xlarge",)),)


@rows([
    ("not on the list", facts(policies=TERMS), None),
    ("on the list", facts(policies=TERMS, instance=instance(type="p5.48xlarge")), "p5.48xlarge is scarce"),
    ("no list", facts(instance=instance(type="p5.48xlarge")), None),
    ("no policy", facts(policies=()), None),
])  # fmt: skip
def test_a_scarce_type_is_held(given, expected):
    check(scarce, given, expected)
