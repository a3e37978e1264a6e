"""A measurement as a row, and how rows are shown."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """
    ``value`` in ``unit``; ``baseline`` in the same, measured in the same run (None: there is none); ``ratio``: value by
    baseline; ``bar``: what has to hold, in words; ``ok``: whether it does. A baseline that is not installed: not ok.
    """

    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    bar: str = ""
    ok: bool = True


def measured(name: str, value: float, unit: str, bar: str, ok: bool, baseline: float | None = None) -> Row:
    ratio = value / baseline if baseline else None
    return Row(name, value, unit, baseline, ratio, bar, ok)


def show(rows: Sequence[Row], as_json: bool) -> None:
    """The table for people; with ``as_json`` one object on the last line of standard output."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for head in ("measurement", "value", "baseline", "ratio", "bar", ""):
        table.add_column(head)
    for row in rows:
        baseline = f"{row.baseline:.3g} {row.unit}" if row.baseline is not None else "-"
        ratio = f"{row.ratio:.2f}x" if row.ratio is not None else "-"
        table.add_row(row.name, f"{row.value:.3g} {row.unit}", baseline, ratio, row.bar, "holds" if row.ok else "DOES NOT HOLD")
    Console(file=sys.stderr if as_json else sys.stdout, width=140).print(table)
    if as_json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}))
