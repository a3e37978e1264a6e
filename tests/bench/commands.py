"""How long a person waits for the command line: whole processes, against an interpreter that does nothing."""

import statistics
import subprocess
import sys
import time

from tests.bench.rows import Row, measured


def run() -> list[Row]:
    nothing = _median([sys.executable, "-c", "pass"])
    rows = []
    for words in (["--help"], ["plan", "--help"], ["why", "--help"]):
        seconds = _median([sys.executable, "-m", "reaper", *words])
        bar, ok = ("under 0.3 s", seconds < 0.3) if words == ["--help"] else ("", True)
        rows.append(measured(f"commands: reaper {' '.join(words)}", seconds, "s", bar, ok, nothing))
    return rows


def _median(line: list[str], rounds: int = 7) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(line, check=True, capture_output=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
