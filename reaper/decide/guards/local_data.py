"""Hold a machine whose type brings local disks: a stop wipes them, and what is on them is not known to us yet."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "local-data"


def local_data(facts: Facts, now: datetime) -> Finding | None:
    """Every setting of ``local_nvme`` is honoured as "hold" until agents report what is on local disks."""
    if facts.instance.local_store is None:
        return hold(NAME, f"whether {facts.instance.type} has local disks is not known", change="a readable instance type")
    if facts.instance.local_store:
        return hold(NAME, f"{facts.instance.type} has local disks that a stop wipes", change="a type without instance store")
    return None
