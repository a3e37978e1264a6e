"""Tell that the tag which names a machine's schedule cannot be read, so that it is under none: nothing is stopped or started by the clock."""

from datetime import datetime

from reaper.decide.facts import Facts
from reaper.decide.findings import note
from reaper.model.decision import Finding

NAME = "hours-unread"


def hours_unread(facts: Facts, now: datetime) -> Finding | None:
    return note(NAME, facts.hours_unread) if facts.hours_unread is not None else None
