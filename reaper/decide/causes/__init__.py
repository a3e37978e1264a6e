"""Rules that nominate an action. A new one is one file and one line here."""

from collections.abc import Callable
from datetime import datetime

from reaper.decide.causes import after_hours, gpu_idle, held, job_ended, morning_start
from reaper.decide.facts import Facts
from reaper.model.decision import Finding

Rule = Callable[[Facts, datetime], Finding | None]

CAUSES: tuple[tuple[str, Rule], ...] = (
    (after_hours.NAME, after_hours.after_hours),
    (morning_start.NAME, morning_start.morning_start),
    (job_ended.NAME, job_ended.job_ended),  # before the others: of equal actions the first one's terms count, but see `lifecycle.preferred`
    (gpu_idle.NAME, gpu_idle.gpu_idle),
    (held.NAME, held.held),
)
