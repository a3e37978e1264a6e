"""What the demo tells: one event a change, and the whole table after each cycle."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from reaper.demo.story import Machine


@dataclass(frozen=True, slots=True)
class Line:
    """One machine as of the newest cycle. ``due_at``: the earliest moment of its stop; None: no countdown runs."""

    machine: Machine
    state: str
    verdict: str
    because: str
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """``kind``: a fixed word; ``text``: the rest of the sentence for people; ``more``: what only machines are told."""

    kind: str
    text: str
    name: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        named = {"name": self.name} if self.name is not None else {}
        return {"event": self.kind, **named, **({"text": self.text} if self.text else {}), **self.more}


@dataclass(frozen=True, slots=True)
class Summary:
    """
    How it ended. ``stopped``: names, by the clouds' own word; ``spared``: every other name with its reason.
    ``wrong``: what is not as the story has it, one sentence each; empty: all is well. ``saved_usd``: dollars an hour.
    ``stories``: for each stopped machine, what the audit says of it, a line an entry.
    """

    stopped: tuple[str, ...]
    spared: Mapping[str, str]
    wrong: tuple[str, ...]
    took_s: float
    saved_usd: float = 0.0
    stories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not self.wrong


class Screen(Protocol):
    """Who shows it: called from the demo's main thread only."""

    def tell(self, event: Event, at_s: float) -> None: ...

    def show(self, lines: tuple[Line, ...]) -> None:
        """The whole table, after each cycle."""
        ...

    def tick(self, now: datetime) -> None:
        """Some time passed: countdowns run."""
        ...

    def finish(self, summary: Summary) -> None: ...
