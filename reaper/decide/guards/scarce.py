"""Hold a type that the operator calls scarce: once stopped, there may be none to start."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "scarce"


def scarce(facts: Facts, now: datetime) -> Finding | None:
    if facts.policy is not None and facts.instance.type in facts.policy.scarce_types:
        return hold(NAME, f"{facts.instance.type} is scarce: it may not start again", change="scarce.types in its policy")
    return None
