"""
Hold what would be ended while termination protection is on, or while that cannot be read. It bars ending and not stopping;
stop protection, which bars both, is a guard of its own.
"""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.decide.wanted import wanted
from reaper.model.decision import Action, Finding

NAME = "termination-protected"


def termination_protected(facts: Facts, now: datetime) -> Finding | None:
    policy, protections = facts.policy, facts.protections
    if policy is None or wanted(policy, facts.instance) is not Action.TERMINATE or protections is None:
        return None  # without a read of protections `stop-protected` holds
    if protections.termination_protected is None:
        return hold(NAME, "termination protection not readable", change="the permission to read it")
    if protections.termination_protected:
        return hold(NAME, "termination protection is on", change="its owner switching it off; we never do")
    return None
