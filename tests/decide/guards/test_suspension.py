"""A policy that wants a machine suspended and nothing else holds what its cloud does not suspend; how long it is good for is told."""

from reaper.decide.guards.suspension import suspension
from reaper.decide.wanted import wanted
from reaper.model.decision import Action, FindingKind
from tests.builders import NOW, facts, instance, policy
from tests.decide.tables import check, rows

ONLY, ELSE_STOP = (policy(action="suspend", suspend_else="hold"),), (policy(action="suspend"),)


@rows([
    ("a policy that stops", facts(), None),
    ("it has GPUs", facts(instance=instance(suspends=False, suspends_not="Google suspends no machine with GPUs"), policies=ONLY), "no machine with GPUs"),
    ("not known", facts(policies=ONLY), "is not known"),
])  # fmt: skip
def test_what_cannot_be_suspended_is_held_where_a_stop_will_not_do(given, expected):
    check(suspension, given, expected)


def test_the_days_that_a_suspension_is_good_for_are_told():
    told = suspension(facts(instance=instance(suspends=True), policies=ONLY), NOW)

    assert told is not None
    assert told.kind is FindingKind.NOTE
    assert "60 days" in told.because


def test_why_it_is_stopped_instead_is_told():
    told = suspension(facts(instance=instance(suspends=False, suspends_not="it has local SSDs"), policies=ELSE_STOP), NOW)

    assert told is not None
    assert (told.kind, "it has local SSDs" in told.because) == (FindingKind.NOTE, True)


def test_the_gentle_action_stands_only_where_the_cloud_is_known_to_do_it():
    suspends, other = instance(suspends=True), instance(suspends=None)

    assert [wanted(ELSE_STOP[0], one) for one in (suspends, other)] == [Action.SUSPEND, Action.STOP]
    assert [wanted(ONLY[0], one) for one in (suspends, other)] == [Action.SUSPEND, Action.SUSPEND]
