"""
Hold a machine while another machine of the same job works, is not known, or has been quiet for less than the term.

Stopping one node of a job kills the whole job.
"""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold, span_text
from reaper.model.decision import Finding
from reaper.model.signal import Activity

NAME = "gang"


def gang(facts: Facts, now: datetime) -> Finding | None:
    """Members that are stopping, stopped or gone are not among ``facts.members``."""
    policy = facts.policy
    if facts.gang is None or policy is None:
        return None
    if facts.gang_incomplete is not None:
        return hold(NAME, f"members may be missing: {facts.gang_incomplete}", change="a listing that answers")
    for member in facts.members:
        if member.state.activity is not Activity.IDLE:
            return hold(NAME, f"{member.name} of the same job is {member.state}", limit="every member idle", change=f"{member.name} idle too")
    term = facts.span if facts.closing is not None and facts.span is not None else policy.idle.idle_for
    for member in facts.members:
        quiet_for = now - member.quiet_since if member.quiet_since is not None else None
        if quiet_for is None or quiet_for < term:
            shown = span_text(quiet_for) if quiet_for is not None else "no time that is known"
            return hold(NAME, f"{member.name} of the same job has been quiet for {shown}", limit=span_text(term))
    return None
