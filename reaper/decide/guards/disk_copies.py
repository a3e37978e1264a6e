"""Tell what the snapshots of a machine are: one of each disk, never one of the whole machine. It holds nothing."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import note
from reaper.decide.wanted import wanted
from reaper.model.decision import Action, Finding

NAME = "snapshots"


def disk_copies(facts: Facts, now: datetime) -> Finding | None:
    policy, instance = facts.policy, facts.instance
    if policy is None or wanted(policy, instance) not in (Action.STOP_AND_SNAPSHOT, Action.TERMINATE):
        return None
    disks = "its one disk" if len(instance.volumes) == 1 else f"each of its {len(instance.volumes)} disks by itself"
    local = "; what is on its local disks is in none of them" if instance.local_store else ""
    return note(NAME, f"snapshots are per disk: after the stop there is one of {disks}, and none of the machine as a whole{local}")
