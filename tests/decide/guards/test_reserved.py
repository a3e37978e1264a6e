"""Capacity that is paid for either way is held, and a covering commitment is told."""

from reaper.decide.guards.reserved import reserved
from reaper.model.decision import FindingKind
from reaper.model.kinds.instance import Lifecycle, Protections
from tests.builders import NOW, facts, instance, policy
from tests.decide.tables import check, rows

IN_ONE = instance(reservation="cr-1")


@rows([
    ("plain on-demand", facts(), None),
    ("in a capacity reservation", facts(instance=IN_ONE), "capacity reservation cr-1, which is paid for either way"),
    ("in one that it cannot leave", facts(instance=instance(reservation="cr-1", reserved_only=True)), "it can start nowhere else"),
    ("no policy to lift it", facts(instance=IN_ONE, policies=()), "cr-1"),
    ("in a capacity block, whatever the policy", facts(instance=instance(lifecycle=Lifecycle.CAPACITY_BLOCK), policies=(policy(reserved="ignore"),)), "paid for in advance"),
])  # fmt: skip
def test_what_a_stop_does_not_save_is_held(given, expected):
    check(reserved, given, expected)


def test_a_policy_may_let_it_go_and_is_told_what_that_saves():
    told = reserved(facts(instance=IN_ONE, policies=(policy(reserved="ignore"),)), NOW)

    assert told.kind is FindingKind.NOTE
    assert "a stop saves nothing" in told.because


def test_a_commitment_is_told_and_holds_nothing():
    told = reserved(facts(protections=Protections(False, covered="2 reserved g5.xlarge are paid for")), NOW)

    assert told.kind is FindingKind.NOTE
    assert "2 reserved g5.xlarge are paid for" in told.because


def test_a_savings_plan_is_told_with_what_is_not_certain_and_holds_nothing():
    told = reserved(facts(protections=Protections(False, committed="Savings Plan sp-1 (for compute) commits the account to 12.5 USD an hour")), NOW)

    assert told.kind is FindingKind.NOTE
    assert "a stop may save nothing: Savings Plan sp-1" in told.because
    assert "whether that covers this machine is not known" in told.because


def test_what_is_certain_and_what_is_not_are_told_apart():
    told = reserved(facts(protections=Protections(False, covered="2 reserved g5.xlarge are paid for", committed="Savings Plan sp-1 commits")), NOW)

    assert "saves nothing as long as 2 reserved" in told.because
    assert "may save nothing: Savings Plan sp-1" in told.because
