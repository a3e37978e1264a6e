"""
Hold what is not plain on-demand: a one-time spot machine cannot be stopped, only ended, and that is never the answer to a
stop that was refused; a persistent one may not come back.

A spot machine of which the cloud says that it may be stopped and keeps its disks is none of that: it can be ended by the
cloud at any time anyway.
"""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding
from reaper.model.kinds.instance import Lifecycle

NAME = "spot"

_WHY = {
    Lifecycle.SPOT: "a stop may be refused, or lose it",
    Lifecycle.SPOT_ONE_TIME: "it cannot be stopped, only ended",
    Lifecycle.SPOT_PERSISTENT: "once stopped, it starts again only when there is spot capacity",
    Lifecycle.CAPACITY_BLOCK: "it is paid for in advance, and a stop saves nothing",
    Lifecycle.OTHER: "a stop may be refused, lose it, or save nothing",
}


def spot(facts: Facts, now: datetime) -> Finding | None:
    lifecycle = facts.instance.lifecycle
    if facts.instance.root == "instance-store":
        return hold(NAME, "its root disk is an instance store: it cannot be stopped, only ended", change="its owner ending it")
    if lifecycle is Lifecycle.ON_DEMAND:
        return None
    if lifecycle is Lifecycle.SPOT and facts.instance.spot_stops:
        return None
    if lifecycle is None:
        return hold(NAME, "how it is paid for is not known", change="a listing that says so")
    return hold(NAME, f"lifecycle {lifecycle}: {_WHY[lifecycle]}", change="an on-demand machine, or its owner ending it")
