"""Another reaper's claim protects."""

from reaper.decide.guards.claimed import claimed_by_another
from reaper.model.decision import FindingKind
from tests.builders import facts
from tests.decide.tables import check, rows


@rows([
    ("no other claim", facts(), None),
    ("claimed by another reaper", facts(claimed_by="claimed by team-b (tag reaper)"), "team-b"),
    ("an empty claim is somebody's", facts(claimed_by=""), ""),
])  # fmt: skip
def test_what_another_reaper_claims_is_protected(given, expected):
    check(claimed_by_another, given, expected, FindingKind.PROTECT)
