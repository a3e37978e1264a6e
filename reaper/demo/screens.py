"""Three ways to show it: a live table for a terminal, a line an event for a pipe, JSON for machines."""

import json
import re
import sys
from collections import deque
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from reaper.demo.events import Event, Line, Screen, Summary

if TYPE_CHECKING:
    from rich.console import RenderableType

_SVG_WIDTH = 140
_NEWS = 4
_FOREIGN_FONTS = re.compile(r"@font-face\s*\{[^}]*\}\s*")
"""rich's pictures would have every reader's browser load a font from a third party; any monospaced one does."""

_COLOURS = {"stopped": "bold red", "last look": "red", "warned": "yellow", "nominated": "yellow", "spared": "green", "watched": "dim"}


class JsonLines:
    """Every event as one object a line; the last line is the summary."""

    def tell(self, event: Event, at_s: float) -> None:
        _out(json.dumps({**event.as_json(), "at_s": round(at_s, 1)}))

    def show(self, lines: tuple[Line, ...]) -> None: ...

    def tick(self, now: datetime) -> None: ...

    def finish(self, summary: Summary) -> None:
        for name, lines in summary.stories.items():
            _out(json.dumps({"event": "why", "name": name, "audit": list(lines)}))
        for sentence in summary.wrong:
            _out(json.dumps({"event": "wrong", "text": sentence}))
        _out(json.dumps({"event": "end", "good": summary.good, "took_s": round(summary.took_s, 1), "saved_usd_per_hour": round(summary.saved_usd, 2)}))
        _out(json.dumps({"event": "summary", "stopped": list(summary.stopped), "spared": dict(summary.spared)}))


class PlainLines:
    """A line an event."""

    def tell(self, event: Event, at_s: float) -> None:
        spared = event.more.get("spared_by")
        kind = f"spared ({spared})" if event.kind == "verdict" and spared else event.more.get("state", event.kind)
        _out(f"{at_s:5.1f} s  {event.name or '':<14} {kind:<26} {event.text}")

    def show(self, lines: tuple[Line, ...]) -> None: ...

    def tick(self, now: datetime) -> None: ...

    def finish(self, summary: Summary) -> None:
        for line in conclusion(summary, whole=True):
            _out(line)


class LiveTable:
    """The table, redrawn in place; a context manager, so that the terminal is left as it was."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._lines: tuple[Line, ...] = ()
        self._now: datetime | None = None
        self._news: deque[str] = deque(maxlen=_NEWS)
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=False, vertical_overflow="crop")

    def __enter__(self) -> "LiveTable":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def tell(self, event: Event, at_s: float) -> None:
        self._news.append(f"{at_s:3.0f} s  {event.name or ''} {event.kind}: {event.text}")
        self._draw()

    def show(self, lines: tuple[Line, ...]) -> None:
        self._lines = lines

    def tick(self, now: datetime) -> None:
        self._now = now
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        news = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._news]
        self._live.update(Group(table(self._lines, self._now), "", *news) if self._lines else Group(*news), refresh=True)

    def finish(self, summary: Summary) -> None:
        from rich.text import Text

        self._live.update(table(self._lines, None), refresh=True)
        self._live.stop()
        for line in conclusion(summary):
            self._console.print(Text(line), soft_wrap=True)


class Recorder:
    """Passes all on to ``inner`` and writes the final screen as SVG to ``path``."""

    def __init__(self, inner: Screen, path: Path) -> None:
        self._inner, self._path = inner, path
        self._lines: tuple[Line, ...] = ()

    def tell(self, event: Event, at_s: float) -> None:
        self._inner.tell(event, at_s)

    def show(self, lines: tuple[Line, ...]) -> None:
        self._lines = lines
        self._inner.show(lines)

    def tick(self, now: datetime) -> None:
        self._inner.tick(now)

    def finish(self, summary: Summary) -> None:
        from rich.console import Console
        from rich.text import Text

        console = Console(record=True, width=_SVG_WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
        console.print(table(self._lines, None))
        for line in conclusion(summary):
            console.print(Text(line))
        picture = _FOREIGN_FONTS.sub("", console.export_svg(title="reaper demo"))
        self._path.write_text(picture, encoding="utf-8")
        self._inner.finish(summary)


def table(lines: tuple[Line, ...], now: datetime | None) -> "RenderableType":
    """``now`` None: no countdown runs any more."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, expand=True)
    made.add_column("machine", no_wrap=True)
    made.add_column("what it does", no_wrap=True, overflow="ellipsis", max_width=38)
    made.add_column("state", no_wrap=True)
    made.add_column("verdict", no_wrap=True)
    made.add_column("stop in", justify="right", no_wrap=True)
    made.add_column("because", no_wrap=True, overflow="ellipsis", ratio=1)
    for line in lines:
        left = ""
        if line.due_at is not None and now is not None:
            left = f"{max((line.due_at - now).total_seconds(), 0.0):.0f} s"
        made.add_row(
            line.machine.name, line.machine.life, line.state, Text(line.verdict, style=_COLOURS.get(line.verdict, "")), left, Text(line.because)
        )
    return made


def conclusion(summary: Summary, *, whole: bool = False) -> list[str]:
    """``whole``: every machine's story and reason; else, below a table that shows the reasons, the story of one."""
    count = len(summary.stopped)
    lines = ["", f"Stopped {count} of {count + len(summary.spared)} machines in {summary.took_s:.0f} s"]
    lines[-1] += f", which saves ${summary.saved_usd:.2f} an hour: {', '.join(summary.stopped)}." if summary.stopped else "."
    for name in summary.stopped if whole else summary.stopped[:1]:
        lines.append(f"What the audit says of {name}:")
        lines += [f"  {line}" for line in summary.stories.get(name, ())]
    if whole:
        lines.append("Spared, each for a reason of its own:")
        lines += [f"  {name:<14} {because}" for name, because in summary.spared.items()]
    if summary.good:
        lines.append("Exactly the right ones stopped, by the clouds' own word.")
        lines.append("Next, with your own account, where it observes and touches nothing: reaper plan")
    else:
        lines += ["Not as it should be:", *(f"  {sentence}" for sentence in summary.wrong)]
    return lines


def _out(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
