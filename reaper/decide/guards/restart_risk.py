"""
Tell how a machine may come back after a stop, and hold where its policy says so.

A start asks for capacity, for the keys of its disks, for room in its placement group and for an address, and may get none
of them. A key that cannot be used now holds whatever the policy says: such a machine would not start at all.
"""

from collections.abc import Iterator
from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold, note
from reaper.model.decision import Finding
from reaper.model.kinds.instance import DiskKey, Lifecycle

NAME = "restart-risk"

MANY_GPUS = 4
"""From so many GPUs on a machine fills most of a server, and a free one is rare."""

USABLE = "Enabled"


def restart_risk(facts: Facts, now: datetime) -> Finding | None:
    protections, policy = facts.protections, facts.policy
    for key in (protections.keys or ()) if protections is not None else ():
        if key.state is not None and key.state != USABLE:
            return hold(NAME, f"could not start again: a disk is encrypted with key {key.id}, which is {key.state}", change="a key that can be used")
    risks = dict(_risks(facts))
    held = [kind for kind in (policy.restart_hold if policy is not None else ()) if kind in risks]
    if held:
        return hold(NAME, risks[held[0]], change=f'restart_hold without "{held[0]}" in its policy')
    return note(NAME, "; ".join(risks.values())) if risks else None


def _risks(facts: Facts) -> Iterator[tuple[str, str]]:
    """By the words of ``restart_hold``. What the cloud does not tell is no risk that could be named."""
    instance, protections = facts.instance, facts.protections
    if instance.public_address is not None and instance.address_kept is False:
        yield "address", f"its public address {instance.public_address} changes with the next start"
    if facts.gpus is not None and facts.gpus >= MANY_GPUS:
        where = f" in {instance.zone}" if instance.zone is not None else ""
        yield "capacity", f"there may be no {instance.type}{where} when it is started again"
    elif instance.lifecycle is Lifecycle.SPOT and instance.spot_stops:
        yield "capacity", f"a spot {instance.type} starts again only where there is capacity to spare, and may be taken back at once"
    if instance.placement_group is not None:
        yield "placement", f"its start needs room in placement group {instance.placement_group}"
    if protections is not None:
        words = _keys(protections.keys, protections.keys_because)
        if words is not None:
            yield "key", words


def _keys(keys: tuple[DiskKey, ...] | None, because: str | None) -> str | None:
    if keys is None:
        return f"which keys its disks need is not readable: {because}" if because is not None else None
    unread = [key for key in keys if key.state is None]
    if unread:
        return f"whether key {unread[0].id} of its disks can be used is not readable: {unread[0].because or 'no reason given'}"
    ours = [key.id for key in keys if key.ours is not False]
    return f"whoever starts it needs kms:CreateGrant on {', '.join(ours)}" if ours else None
