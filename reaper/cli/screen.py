"""
How things are shown: tables for people, one JSON object for machines, and no stranger's text taken at its word.

On a terminal a table fits its width; into a pipe every machine is one line with its whole id, however long.
"""

import json
import sys
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from reaper.decide.findings import span_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_PIPED_WIDTH = 4000
_SPACES = ("\n", "\r", "\t", "\v", "\f", "\x85")

Cell = str | tuple[str, ...] | None
"""Several parts stand below each other on a terminal and beside each other in a pipe; None or "" is nothing."""

STYLES = {"act": "bold red", "wait": "yellow", "keep": "green"}


def clean(text: str, most: int = 300) -> str:
    """One line of printable text: tags and agents' words may hold escape sequences and marks that turn text around."""
    kept = []
    for char in text:
        category = unicodedata.category(char)
        if char in _SPACES or category in ("Zl", "Zp"):
            kept.append(" ")
        elif not category.startswith("C"):
            kept.append(char)
    line = " ".join("".join(kept).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def console(*, to_stderr: bool = False) -> "Console":
    from rich.console import Console

    file = sys.stderr if to_stderr else sys.stdout
    width = None if file.isatty() else _PIPED_WIDTH
    return Console(file=file, width=width, markup=False, emoji=False, highlight=False)


def narrow(screen: "Console") -> bool:
    return screen.width < _PIPED_WIDTH


def table(screen: "Console", columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, wide: Sequence[str] = (), ids: Sequence[str] = ()) -> None:
    """``wide``: columns for longer text, which never get too narrow. ``ids``: columns whose cells end with an id, which stays whole."""
    from rich import box
    from rich.table import Table

    slim = narrow(screen)
    made = Table(box=box.SIMPLE_HEAD if slim else None, pad_edge=False, padding=(0, 2 if not slim else 1, 0, 0), header_style="bold")
    for place, column in enumerate(columns):
        least = 14 if column in wide else None
        if column in ids:
            least = max((len(_parts(row[place])[-1]) for row in rows if _parts(row[place])), default=None)
        made.add_column(column, overflow="fold", min_width=least if slim else None)
    for row in rows:
        made.add_row(*[_cell(cell, slim) for cell in row])
    screen.print(made)


def _cell(cell: Cell, slim: bool) -> "Text":
    from rich.text import Text

    parts = _parts(cell)
    text = ("\n" if slim else "  ").join(parts)
    return Text(text, style=STYLES.get(parts[0] if parts else "", ""))


def _parts(cell: Cell) -> list[str]:
    return [clean(part) for part in ((cell,) if isinstance(cell, str) else cell or ()) if part]


def say(screen: "Console", *lines: str) -> None:
    """Each on a line of its own, wrapped by the terminal and not by us, so that an id can be copied."""
    from rich.text import Text

    for line in lines:
        indent = line[: len(line) - len(line.lstrip(" "))]
        screen.print(Text(indent + clean(line, 2000)), soft_wrap=True)


def result(value: dict[str, Any]) -> None:
    """The one object of --json, on the last line."""
    print(json.dumps(value))


def when(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment is not None else ""


def iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if moment is not None else None


def ago(moment: datetime | None, now: datetime) -> str:
    return f"{span_text(now - moment)} ago" if moment is not None else ""


def dollars(amount: float) -> str:
    return f"${amount:,.2f}"
