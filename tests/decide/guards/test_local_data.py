"""A stop wipes local disks."""

import pytest

from reaper.decide.guards.local_data import local_data
from tests.builders import facts, instance, policy
from tests.decide.tables import check, rows


@rows([
    ("no local disks", facts(), None),
    ("local disks", facts(instance=instance(local_store=True)), "that a stop wipes"),
    ("not known", facts(instance=instance(local_store=None)), "is not known"),
])  # fmt: skip
def test_local_disks_hold(given, expected):
    check(local_data, given, expected)


@pytest.mark.parametrize("setting", ["hold", "if-empty", "discard"])
def test_every_setting_of_local_disks_holds_until_agents_can_tell(setting):
    check(local_data, facts(instance=instance(local_store=True), policies=(policy(local_nvme=setting),)), "that a stop wipes")
