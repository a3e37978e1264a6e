"""Rules that nominate an action. A new one is one file and one line here."""

from collections.abc import Callable
from datetime import datetime

from reaper.decide.causes import gpu_idle, held, job_ended
from reaper.decide.facts import Facts
from reaper.model.decision import Finding

Rule = Callable[[Facts, datetime], Finding | None]

CAUSES: tuple[tuple[str, Rule], ...] = (
    (job_ended.NAME, job_ended.job_ended),  # before the others: of equal actions the first one's terms count
    (gpu_idle.NAME, gpu_idle.gpu_idle),
    (held.NAME, held.held),
)
