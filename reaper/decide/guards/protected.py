"""Protect what the operator listed, and what carries a keep-until of its own, until that ends."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import protect
from reaper.model.decision import Finding

NAME = "protected"


def protected(facts: Facts, now: datetime) -> Finding | None:
    for shield in facts.shields:
        if shield.holds(now):
            until = f"until {shield.until:%Y-%m-%d %H:%M %Z}" if shield.until else "with no end"
            return protect(NAME, f"protected by {shield.name} {until}: {shield.reason}", change=f"the end of {shield.name}")
    return None
