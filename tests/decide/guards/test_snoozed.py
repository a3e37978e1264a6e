"""A person's "not until" holds; the latest end of several wins."""

from reaper.decide.guards.snoozed import snoozed
from tests.builders import DAY, NOW, SECOND, facts, snooze
from tests.decide.tables import check, rows


@rows([
    ("nobody asked", facts(), None),
    ("until the next hour", facts(snoozes=(snooze(),)), "ada keeps it until 2026-03-04 13:00 UTC: demo"),
    ("the last second holds", facts(snoozes=(snooze(NOW + SECOND),)), "ada"),
    ("the end itself no longer holds", facts(snoozes=(snooze(NOW),)), None),
    ("the latest of several ends is told", facts(snoozes=(snooze(NOW + DAY, "bob"), snooze(who="ada"))), "bob"),
    ("one that is over does not end one that is not", facts(snoozes=(snooze(NOW - DAY, "bob"), snooze())), "ada"),
])  # fmt: skip
def test_a_snooze_holds(given, expected):
    check(snoozed, given, expected)
