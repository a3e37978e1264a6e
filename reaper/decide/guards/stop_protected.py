"""Hold what its owner switched stop protection on for. It is read for nominated machines only; unread or unreadable protects."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "stop-protected"
_ASKED_BY = {"aws": "ec2:DescribeInstanceAttribute", "gcp": "compute.instances.get"}
UNREAD = "stop protection not read yet"


def stop_protected(facts: Facts, now: datetime) -> Finding | None:
    protections = facts.protections
    if protections is None:
        return hold(NAME, UNREAD)
    if protections.stop_protected is None:
        return hold(NAME, f"stop protection not readable: {protections.because or 'no reason given'}", change=_ASKED_BY.get(facts.instance.id.cloud))
    if protections.stop_protected:
        return hold(NAME, "stop protection is on", change="its owner switching it off; we never do")
    return None
