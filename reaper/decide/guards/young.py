"""Hold a machine that was started a moment ago: set-up, image pulls and environments come before the first kernel."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold, span_text
from reaper.model.decision import Finding

NAME = "too-young"


def too_young(facts: Facts, now: datetime) -> Finding | None:
    """Hold for the policy's ``min_age`` from the start the cloud shows, and where no start is known."""
    policy = facts.policy
    if policy is None:
        return None
    if facts.running_since is None:
        return hold(NAME, "no start time known")
    age = now - facts.running_since
    if age < policy.min_age:
        left = span_text(policy.min_age - age)
        return hold(NAME, f"started {span_text(age)} ago", value=span_text(age), limit=span_text(policy.min_age), change=f"{left} more")
    return None
