"""A group would replace a stopped member, with new disks and new addresses."""

from reaper.decide.guards.owned import managed_member
from reaper.model.kinds.instance import Protections
from tests.builders import NOW, facts, instance
from tests.decide.tables import check, rows


@rows([
    ("its own machine", facts(), None),
    ("a member of an auto scaling group", facts(instance=instance(managed_by="auto scaling group train-a")), "auto scaling group train-a"),
    ("a node of a managed node group", facts(instance=instance(managed_by="EKS node group gpu")), "would replace it"),
    ("an owner that its own API names", facts(protections=Protections(False, managed_by="ECS cluster gpu")), "ECS cluster gpu"),
    ("owners that could not be asked", facts(protections=Protections(False, owner_unread="denied")), "whether a group owns it is not readable: denied"),
    ("nothing read yet, which another rule holds", facts(protections=Protections(False)), None),
    ("an owner without a name", facts(instance=instance(managed_by="")), "would replace it"),
])  # fmt: skip
def test_a_member_of_a_group_is_held(given, expected):
    check(managed_member, given, expected)


def test_what_to_do_instead_is_told():
    told = managed_member(facts(instance=instance(managed_by="EKS node group gpu", managed_instead="scale the node group")), NOW)
    by_api = managed_member(facts(protections=Protections(False, managed_by="ECS cluster c", managed_instead="lower its size")), NOW)

    assert (told.change, by_api.change) == ("scale the node group", "lower its size")
