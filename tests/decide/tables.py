"""How a rule's table is read: a sentence, the facts, and what the rule says of them (None: it lets them pass)."""

import pytest

from reaper.decide.engine import decide
from reaper.model.decision import FindingKind, Verdict
from tests.builders import NOW


def rows(table):
    """Parametrises a test with (facts, expected) under the sentences as ids."""
    return pytest.mark.parametrize(("given", "expected"), [pytest.param(*row[1:], id=row[0]) for row in table])


def check(rule, given, expected, kind=FindingKind.HOLD):
    """The rule's own answer, and that no decision lets a machine go against it."""
    answer = rule(given, NOW)
    if expected is None:
        assert answer is None
        return
    assert answer is not None
    assert expected in answer.because
    assert answer.kind is kind
    assert answer.exempts == ()
    assert decide(given, NOW).verdict is not Verdict.ACT
