"""
Hold capacity that is paid for whether the machine runs or not: a stop saves nothing, and may give the room away.

A reserved instance or a Savings Plan is only told: it covers whichever machine runs.
"""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold, note
from reaper.model.decision import Finding
from reaper.model.kinds.instance import Lifecycle

NAME = "reservation"


def reserved(facts: Facts, now: datetime) -> Finding | None:
    instance, protections = facts.instance, facts.protections
    if instance.lifecycle is Lifecycle.CAPACITY_BLOCK:
        return hold(NAME, "runs in a capacity block, which is paid for in advance: a stop saves nothing and may be for good", change="the end of the block")
    if instance.reservation is not None:
        only = ", and it can start nowhere else" if instance.reserved_only else ""
        because = f"runs in capacity reservation {instance.reservation}, which is paid for either way: a stop saves nothing{only}"
        if facts.policy is None or facts.policy.reserved != "ignore":
            return hold(NAME, because, change='reserved = "ignore" in its policy, or an end of the reservation')
        return note(NAME, because)
    told = []
    if protections is not None and protections.covered is not None:
        told.append(f"a stop saves nothing as long as {protections.covered}")
    if protections is not None and protections.committed is not None:
        told.append(f"a stop may save nothing: {protections.committed}, paid either way; whether that covers this machine is not known")
    return note(NAME, "; ".join(told)) if told else None
