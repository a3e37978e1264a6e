"""Only plain on-demand machines are stopped."""

import pytest

from reaper.decide.guards.lifecycle_kind import spot
from reaper.model.kinds.instance import Lifecycle
from tests.builders import facts, instance
from tests.decide.tables import check


def test_an_on_demand_machine_passes():
    check(spot, facts(), None)


@pytest.mark.parametrize("lifecycle", [kind for kind in Lifecycle if kind is not Lifecycle.ON_DEMAND], ids=str)
def test_spot_prepaid_and_unheard_of_lifecycles_are_held(lifecycle):
    check(spot, facts(instance=instance(lifecycle=lifecycle)), f"lifecycle {lifecycle}")


def test_a_lifecycle_that_is_not_known_is_held():
    check(spot, facts(instance=instance(lifecycle=None)), "not known")


def test_a_spot_machine_that_keeps_its_disks_when_stopped_passes():
    check(spot, facts(instance=instance(lifecycle=Lifecycle.SPOT, spot_stops=True)), None)


@pytest.mark.parametrize("stops", [None, False])
def test_a_spot_machine_that_does_not_or_may_not_is_held(stops):
    check(spot, facts(instance=instance(lifecycle=Lifecycle.SPOT, spot_stops=stops)), "lifecycle spot")


@pytest.mark.parametrize("lifecycle", [kind for kind in Lifecycle if kind not in (Lifecycle.ON_DEMAND, Lifecycle.SPOT)], ids=str)
def test_what_is_said_of_spot_machines_lets_no_other_go(lifecycle):
    check(spot, facts(instance=instance(lifecycle=lifecycle, spot_stops=True)), f"lifecycle {lifecycle}")


@pytest.mark.parametrize(("fields", "word"), [({"reservation": "block"}, "runs in capacity reservation block"), ({"tenancy": "host"}, "host of its own")])
@pytest.mark.parametrize("lifecycle", [Lifecycle.ON_DEMAND, Lifecycle.SPOT], ids=str)
def test_what_is_paid_for_either_way_is_held(lifecycle, fields, word):
    check(spot, facts(instance=instance(lifecycle=lifecycle, spot_stops=True, **fields)), word)
