"""A schedule that cannot be read is told, and neither holds nor moves anything else."""

from reaper.decide.engine import decide
from reaper.decide.guards.hours_unread import hours_unread
from reaper.model.decision import FindingKind, Verdict
from tests.builders import NOW, facts


def test_a_tag_that_names_no_schedule_is_told():
    answer = hours_unread(facts(hours_unread="its tag says 'offce'"), NOW)

    assert answer is not None
    assert (answer.kind, answer.because) == (FindingKind.NOTE, "its tag says 'offce'")
    assert hours_unread(facts(), NOW) is None
    assert decide(facts(hours_unread="its tag says 'offce'"), NOW).verdict is Verdict.ACT  # an idle machine is an idle machine
