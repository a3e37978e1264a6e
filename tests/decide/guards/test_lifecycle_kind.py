"""Only plain on-demand machines are stopped."""

import pytest

from reaper.decide.guards.lifecycle_kind import spot
from reaper.model.kinds.instance import Lifecycle
from tests.builders import facts, instance, policy
from tests.decide.tables import check


def test_an_on_demand_machine_passes():
    check(spot, facts(), None)


@pytest.mark.parametrize("lifecycle", [kind for kind in Lifecycle if kind is not Lifecycle.ON_DEMAND], ids=str)
def test_spot_prepaid_and_unheard_of_lifecycles_are_held(lifecycle):
    check(spot, facts(instance=instance(lifecycle=lifecycle)), f"lifecycle {lifecycle}")


def test_a_lifecycle_that_is_not_known_is_held():
    check(spot, facts(instance=instance(lifecycle=None)), "not known")


def test_a_one_time_spot_machine_is_told_apart():
    check(spot, facts(instance=instance(lifecycle=Lifecycle.SPOT_ONE_TIME)), "cannot be stopped, only ended")
    check(spot, facts(instance=instance(lifecycle=Lifecycle.SPOT_PERSISTENT)), "only when there is spot capacity")


def test_a_root_disk_that_a_stop_would_end_is_held_whatever_the_policy_says_of_local_disks():
    machine = instance(root="instance-store", local_store=True)

    check(spot, facts(instance=machine, policies=(policy(local_nvme="discard"),)), "root disk is an instance store")
    check(spot, facts(instance=instance(root="ebs")), None)


def test_a_spot_machine_that_keeps_its_disks_when_stopped_passes():
    check(spot, facts(instance=instance(lifecycle=Lifecycle.SPOT, spot_stops=True)), None)


@pytest.mark.parametrize("stops", [None, False])
def test_a_spot_machine_that_does_not_or_may_not_is_held(stops):
    check(spot, facts(instance=instance(lifecycle=Lifecycle.SPOT, spot_stops=stops)), "lifecycle spot")


@pytest.mark.parametrize("lifecycle", [kind for kind in Lifecycle if kind not in (Lifecycle.ON_DEMAND, Lifecycle.SPOT)], ids=str)
def test_what_is_said_of_spot_machines_lets_no_other_go(lifecycle):
    check(spot, facts(instance=instance(lifecycle=lifecycle, spot_stops=True)), f"lifecycle {lifecycle}")
