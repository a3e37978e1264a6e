"""A group would replace a stopped member, with new disks and new addresses."""

from reaper.decide.guards.owned import managed_member
from tests.builders import facts, instance
from tests.decide.tables import check, rows


@rows([
    ("its own machine", facts(), None),
    ("a member of an auto scaling group", facts(instance=instance(managed_by="auto scaling group train-a")), "auto scaling group train-a"),
    ("a node of a managed node group", facts(instance=instance(managed_by="EKS node group gpu")), "would replace it"),
    ("an owner without a name", facts(instance=instance(managed_by="")), "would replace it"),
])  # fmt: skip
def test_a_member_of_a_group_is_held(given, expected):
    check(managed_member, given, expected)
