"""Hold a member of a group: its owner would replace a stopped member, with new disks and new addresses."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "managed-member"


def managed_member(facts: Facts, now: datetime) -> Finding | None:
    if facts.instance.managed_by is not None:
        return hold(NAME, f"belongs to {facts.instance.managed_by}, which would replace it", change="scale the group instead")
    return None
