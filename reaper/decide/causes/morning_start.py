"""
Nominate the start of a machine that a schedule wants back: we stopped it, nobody touched it since, and its hours are near.

Near enough to be ready when they begin, by how long it took the last times. A start takes nothing away, so no guard about
work binds it; that it is ours to start is asked here.
"""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import nominate
from reaper.model.decision import Action, Finding
from reaper.model.kinds.instance import AT_REST
from reaper.model.policy import MORNING_START

NAME = MORNING_START


def morning_start(facts: Facts, now: datetime) -> Finding | None:
    """Declines while the machine is not quite stopped, or another of its job has to be up first."""
    morning = facts.morning
    if morning is None or facts.instance.state not in AT_REST or facts.attempt_open:
        return None
    if len(facts.policies) != 1 or facts.ineligible is not None or facts.claimed_by is not None:
        return None
    if morning.refused is not None or morning.waits is not None or now < morning.begins_at:
        return None
    if morning.until is not None and now >= morning.until:
        return None
    return nominate(
        NAME, Action.START, because=morning.because, value=f"{morning.begins_at:%Y-%m-%d %H:%M %Z}", limit=f"{morning.ready_at:%Y-%m-%d %H:%M %Z}",
        age=None, change="somebody who touches it, or another schedule",
    )  # fmt: skip
