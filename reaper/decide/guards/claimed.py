"""Leave alone what another reaper claims, or what does not carry our claim where we need one."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import protect
from reaper.model.decision import Finding

NAME = "claimed-by-another"


def claimed_by_another(facts: Facts, now: datetime) -> Finding | None:
    if facts.claimed_by is not None:
        return protect(NAME, facts.claimed_by, change="the claim tag, which only its operator sets")
    return None
