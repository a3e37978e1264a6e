"""Leave alone what the operator's scope does not name."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import protect
from reaper.model.decision import Finding

NAME = "ineligible"


def ineligible(facts: Facts, now: datetime) -> Finding | None:
    if facts.ineligible is not None:
        return protect(NAME, facts.ineligible, change="a tag or id that [scope] names")
    return None
