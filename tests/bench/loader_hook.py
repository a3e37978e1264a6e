"""What `timed_loader` costs a batch, in a loop that does nothing else: with an agent there, none, and one that does not read."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.rows import Row, measured

ROOT = Path(__file__).resolve().parents[2]
BATCHES, ROUNDS = 1_000_000, 5
BAR_US = 2.0

LOOP = """
import sys, time
from agent.loader_hook import timed_loader
batches, rounds = int(sys.argv[1]), int(sys.argv[2])
def timed(loader):
    began = time.perf_counter()
    for _ in loader:
        pass
    return (time.perf_counter() - began) / batches * 1e6
plain = min(timed(range(batches)) for _ in range(rounds))
print(min(timed(timed_loader(range(batches))) for _ in range(rounds)) - plain, plain)
"""


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="hook-bench-") as name:
        path = Path(name) / "hook.sock"
        rows = [_row("no agent there", path)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
            agent.bind(str(path))
            rows.append(_row("an agent that does not read: full after a few", path))
    rows.append(_row("turned off", Path("off")))
    return rows


def _row(name: str, path: Path) -> Row:
    done = subprocess.run(
        [sys.executable, "-c", LOOP, str(BATCHES), str(ROUNDS)], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "REAPER_AGENT_HOOK_SOCKET": str(path)},
    )  # fmt: skip
    cost, plain = map(float, done.stdout.split())
    return measured(f"loader_hook: added to a batch, {name}", cost, "us", f"under {BAR_US:g} us", cost < BAR_US, plain)
