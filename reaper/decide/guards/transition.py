"""Hold a machine that is between two states, in one we do not know, or whose last action of ours is open or just failed."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding
from reaper.model.kinds.instance import InstanceState

NAME = "in-transition"


def in_transition(facts: Facts, now: datetime) -> Finding | None:
    if facts.attempt_open:
        return hold(NAME, "an earlier action of ours is not closed yet", change="its outcome, read from the cloud")
    if facts.back_off_until is not None and now < facts.back_off_until:
        why = facts.back_off_because or "no reason given"
        return hold(NAME, f"the last try failed ({why}); the next not before {facts.back_off_until:%H:%M %Z}", change="time, or the cause removed")
    if facts.instance.state is not InstanceState.RUNNING:
        return hold(NAME, f"the machine is {facts.instance.state}", change="state running")
    return None
