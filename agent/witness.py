"""
The energy counter as a second witness: a GPU that draws clearly more than at rest is not believed to be idle.

A driver may answer zero for a GPU that works (a counter that hangs, a mode in which it
is not kept). What is at rest is learnt per GPU: the least mean power of a window with
no utilisation, no process and hardly any memory since the start. Before that is known,
nothing is doubted.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional

LEAST_S = 10.0  # the counter of some products moves only every 100 ms; over less than this its mean says little
HARDLY_BYTES = 256 << 20  # as much may be used with nobody on it
# A loaded model alone wakes a GPU from its deepest sleep: from 9 to 50 W on a P40, from 70 to 120 W on an H100. So with
# a process or memory on it only much more is a sign of work.
EMPTY_MARGIN_W, EMPTY_MARGIN = 30.0, 0.5
HELD_MARGIN_W, HELD_MARGIN = 100.0, 1.5


class Energy(NamedTuple):
    """The counter (joules) at a moment of the boot clock (seconds)."""

    at_s: float
    joules: float


class Witness:
    """Remembers each GPU's power at rest since the start of the agent."""

    def __init__(self) -> None:
        self._rest_w: Dict[str, float] = {}

    def doubts(self, uuid: str, first: Optional[Energy], last: Optional[Energy], empty: bool, peak: float = 0.0) -> Optional[str]:
        """
        Why a window in which no sample was above ``peak`` (0, or next to nothing) is not
        believed; None: nothing speaks against it. ``first`` and ``last``: the counter's
        readings in the window. ``empty``: no process was on the GPU, and hardly any memory taken.
        """
        empty = empty and peak == 0.0  # the least use wakes a GPU, too
        power_w = mean_power_w(first, last)
        if power_w is None:
            return None
        rest_w = self._rest_w.get(uuid)
        if rest_w is not None and power_w > rest_w + margin_w(rest_w, empty):
            return "utilisation %s not believed: drew %.0f W, at rest %.0f W" % ("%.0f%%" % (100 * peak) if peak else "0", power_w, rest_w)
        if empty and (rest_w is None or power_w < rest_w):
            self._rest_w[uuid] = power_w
        return None


def margin_w(rest_w: float, empty: bool) -> float:
    return max(EMPTY_MARGIN_W, EMPTY_MARGIN * rest_w) if empty else max(HELD_MARGIN_W, HELD_MARGIN * rest_w)


def mean_power_w(first: Optional[Energy], last: Optional[Energy]) -> Optional[float]:
    """None: too little time between them, or the counter stood still or ran backwards (it starts anew with the driver)."""
    if first is None or last is None or last.at_s - first.at_s < LEAST_S or last.joules <= first.joules:
        return None
    return (last.joules - first.joules) / (last.at_s - first.at_s)
