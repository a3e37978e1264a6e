"""
The whole agent, as the command runs it, with a clock that jumps over every wait between beats.

Run with the packaged set alone: WINDOWS FIRST_LOOK STATE_FILE. The processes that hold the GPUs change every few windows.
The clock stands still while a report is on its way, so that each is delivered, as in life.
Prints the resident MiB after FIRST_LOOK windows and at the end.
"""

import os
import signal
import sys
import threading
import time
from typing import Any

from agent import clock, sender

WINDOWS, FIRST_LOOK, STATE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
BEATS_A_WINDOW, CHANGE_EVERY = 2, 10
DELIVERED_WITHIN_S = 10.0
PATIENCE_S = 1.0  # what the loop waits for its sampler; that wait is real


class Sending(sender.Sender):
    """Counts what it was handed and has seen through."""

    handed = done = 0

    def hand(self, report: Any) -> None:
        SENDING.handed += 1
        super().hand(report)

    def pump(self) -> Any:
        before = SENDING.handed
        rest = super().pump()
        SENDING.done = before
        return rest


SENDING = Sending


class Jumping(clock.BootClock):
    def __init__(self) -> None:
        super().__init__()
        self._ahead_s = 0.0
        self._jumps = 0

    def boot_s(self) -> float:
        return super().boot_s() + self._ahead_s

    def wait(self, event: threading.Event, for_s: float) -> bool:
        if for_s <= PATIENCE_S:
            return super().wait(event, for_s)
        until = time.monotonic() + DELIVERED_WITHIN_S
        while SENDING.handed > SENDING.done and time.monotonic() < until:
            time.sleep(0.0005)
        self._ahead_s += for_s
        self._jumps += 1
        windows, inside = divmod(self._jumps, BEATS_A_WINDOW)
        if inside == 0:
            self._window_over(windows)
        return event.is_set()

    def _window_over(self, windows: int) -> None:
        if windows % CHANGE_EVERY == 0:
            change(windows)
        if windows == FIRST_LOOK:
            print(resident_mib())
        if windows == WINDOWS:
            print(resident_mib())
            os.kill(os.getpid(), signal.SIGTERM)


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def change(windows: int) -> None:
    """Other processes than before: one that lives and seven that nobody has seen yet."""
    lines = ["count 8", f"gpu * util {windows % 101}", "gpu * mem 61000 81920", f"gpu 0 proc {os.getpid()} 60500"]
    lines += [f"gpu {i} proc {100_000 + (windows * 8 + i) % 4_000_000} 60500" for i in range(1, 8)]
    with open(STATE + ".new", "w") as file:
        file.write("\n".join(lines) + "\n")
    os.replace(STATE + ".new", STATE)


clock.BootClock = Jumping  # type: ignore[misc]  before the command binds them
sender.Sender = Sending  # type: ignore[misc]
os.environ["REAPER_AGENT_BEAT"] = "30s"

from agent.__main__ import main  # noqa: E402

sys.exit(main(["run"]))
