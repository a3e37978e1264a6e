"""What the operator's scope does not name is left alone."""

from reaper.decide.guards.eligible import ineligible
from reaper.model.decision import FindingKind
from tests.builders import facts
from tests.decide.tables import check, rows


@rows([
    ("inside the scope", facts(), None),
    ("outside the scope", facts(ineligible="outside [scope]"), "outside [scope]"),
    ("a reason that is empty still protects", facts(ineligible=""), ""),
])  # fmt: skip
def test_what_the_scope_does_not_name_is_protected(given, expected):
    check(ineligible, given, expected, FindingKind.PROTECT)
