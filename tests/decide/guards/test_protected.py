"""A protection protects until its own end and not a moment longer."""

from reaper.decide.guards.protected import protected
from reaper.model.decision import FindingKind
from tests.builders import DAY, NOW, SECOND, facts, shield
from tests.decide.tables import check, rows


@rows([
    ("nothing protects it", facts(), None),
    ("protected with no end", facts(shields=(shield(),)), "with no end"),
    ("protected until tomorrow", facts(shields=(shield(until=NOW + DAY),)), "a three-week run"),
    ("the last second still protects", facts(shields=(shield(until=NOW + SECOND),)), "protect.run"),
    ("the end itself no longer protects", facts(shields=(shield(until=NOW),)), None),
    ("one that ended does not hide one that holds", facts(shields=(shield("old", NOW - DAY), shield("new"))), "protected by new"),
])  # fmt: skip
def test_a_protection_holds_until_its_end(given, expected):
    check(protected, given, expected, FindingKind.PROTECT)
