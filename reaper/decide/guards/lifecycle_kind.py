"""
Hold what is not plain on-demand: a one-time spot machine cannot be stopped, and stopping prepaid capacity saves nothing.

A spot machine of which the cloud says that it may be stopped and keeps its disks is none of that: it can be ended by the
cloud at any time anyway.
"""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding
from reaper.model.kinds.instance import Lifecycle

NAME = "spot"


def spot(facts: Facts, now: datetime) -> Finding | None:
    lifecycle = facts.instance.lifecycle
    if facts.instance.reservation is not None:
        return hold(NAME, f"runs in capacity reservation {facts.instance.reservation}, which is paid for either way: a stop saves nothing")
    if facts.instance.tenancy == "host":
        return hold(NAME, "is on a host of its own, which is paid for either way: a stop saves nothing")
    if lifecycle is Lifecycle.ON_DEMAND:
        return None
    if lifecycle is Lifecycle.SPOT and facts.instance.spot_stops:
        return None
    if lifecycle is None:
        return hold(NAME, "how it is paid for is not known", change="a listing that says so")
    return hold(NAME, f"lifecycle {lifecycle}: a stop may be refused, lose it, or save nothing")
