"""Hold what a person asked to keep. Snoozes add up: the latest end wins."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import hold
from reaper.model.decision import Finding

NAME = "snoozed"


def snoozed(facts: Facts, now: datetime) -> Finding | None:
    active = [snooze for snooze in facts.snoozes if snooze.active(now)]
    if active:
        last = max(active, key=lambda snooze: snooze.until)
        return hold(NAME, f"{last.who} keeps it until {last.until:%Y-%m-%d %H:%M %Z}: {last.reason}", change="the end of the snooze")
    return None
