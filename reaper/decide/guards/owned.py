"""Hold a member of a group: its owner would replace a stopped member, with new disks and new addresses."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "managed-member"


def managed_member(facts: Facts, now: datetime) -> Finding | None:
    """By the listing, and by what the owners' own APIs say of a nominated machine; one that could not be asked holds."""
    instance, protections = facts.instance, facts.protections
    if instance.managed_by is not None:
        return hold(NAME, f"belongs to {instance.managed_by}, which would replace it", change=instance.managed_instead or "scale the group instead")
    if protections is None:
        return None
    if protections.managed_by is not None:
        return hold(NAME, f"belongs to {protections.managed_by}, which would replace it", change=protections.managed_instead or "scale the group instead")
    if protections.owner_unread is not None:
        return hold(NAME, f"whether a group owns it is not readable: {protections.owner_unread}", change="the permission to ask")
    return None
