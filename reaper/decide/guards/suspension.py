"""
Hold what its policy wants suspended and nothing else, where its cloud does not do that; tell what a suspension is good for.

Memory is kept for a limited time only: whoever comes back later finds a stopped machine, as after a power cut.
https://cloud.google.com/compute/docs/instances/suspend-stop-reset-instances-overview
"""

from datetime import datetime, timedelta

from reaper.decide.facts import Facts
from reaper.decide.findings import hold, note
from reaper.model.decision import Finding

NAME = "suspension"

KEPT_FOR = timedelta(days=60)
"""How long Google keeps a suspended machine's memory. Then it stops the machine."""


def suspension(facts: Facts, now: datetime) -> Finding | None:
    policy, instance = facts.policy, facts.instance
    if policy is None or policy.action != "suspend":
        return None
    if instance.suspends is True:
        return note(NAME, f"suspended, its memory is kept for {KEPT_FOR.days} days at most; then the cloud stops it, and what was not on a disk is lost")
    why = instance.suspends_not or "whether its cloud suspends it is not known"
    if policy.suspend_else == "stop":
        return note(NAME, f"stopped and not suspended, its memory is lost: {why}")
    return hold(NAME, f"it cannot be suspended: {why}", change='suspend_else = "stop" in its policy')
