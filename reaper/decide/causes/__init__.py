"""Rules that nominate an action. A new one is one file and one line here."""

from collections.abc import Callable
from datetime import datetime

from reaper.decide.causes import gpu_idle, held
from reaper.decide.facts import Facts
from reaper.model.decision import Finding

Rule = Callable[[Facts, datetime], Finding | None]

CAUSES: tuple[tuple[str, Rule], ...] = (
    (gpu_idle.NAME, gpu_idle.gpu_idle),
    (held.NAME, held.held),
)
