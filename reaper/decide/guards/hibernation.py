"""Hold what its policy wants hibernated and nothing else, where it was not launched for that: a plain stop loses its memory."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "cannot-hibernate"


def cannot_hibernate(facts: Facts, now: datetime) -> Finding | None:
    policy = facts.policy
    if policy is None or policy.action != "hibernate" or policy.hibernate_else == "stop" or facts.instance.hibernation is True:
        return None
    return hold(NAME, "it was not launched for hibernation", change='hibernate_else = "stop" in its policy')
