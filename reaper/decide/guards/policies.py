"""Hold a machine that two policies match: whose terms apply is for a person to say."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "two-policies"


def two_policies(facts: Facts, now: datetime) -> Finding | None:
    if len(facts.policies) > 1:
        names = " and ".join(policy.name for policy in facts.policies)
        return hold(NAME, f"policies {names} both match", change="selectors that do not overlap")
    return None
