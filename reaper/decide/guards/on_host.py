"""Hold what is on a dedicated host: the host is paid for as long as it is allocated, whatever runs on it."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "host"

SHARED = (None, "default", "dedicated")
"""Tenancies that are billed by the machine. None: the cloud has no such word."""


def on_host(facts: Facts, now: datetime) -> Finding | None:
    instance = facts.instance
    if instance.tenancy not in SHARED or instance.host is not None or instance.type.startswith("mac"):
        where = f"dedicated host {instance.host}" if instance.host is not None else f"a host of its own (tenancy {instance.tenancy or 'not told'})"
        return hold(NAME, f"is on {where}, which is paid for either way: a stop saves nothing", change="releasing the host")
    return None
