"""
What a machine wastes that works: waiting for its data, and GPUs of it that nobody uses. A share of its window or of its
GPUs, and of its price. It is reported, and nothing is done about it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reaper.decide.findings import span_text
from reaper.model.signal import LoaderWindow, Observation

# Where no policy says otherwise.
SHIPPED_ABOVE = 0.30
SHIPPED_LIMIT, SHIPPED_TERM = 0.05, timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Waste:
    """
    ``tree``: the one that waited longest, for ``share`` (0..1) of the newest window; ``measured``: the job said so itself.
    ``usd_per_day``: what the waiting costs as long as it goes on so, each tree having an equal part of the machine; None: no
    price is known.
    """

    tree: str
    share: float
    measured: bool
    usd_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """
    ``idle`` of a machine's ``count`` GPUs, none of which computed for at least ``idle_for``, while others did; on ``held`` of them lies
    somebody's memory. ``usd_per_day``: their part of the machine's price, each GPU having an equal one; None: no price is known.
    """

    idle: int
    count: int
    idle_for: timedelta
    held: int = 0
    usd_per_day: float | None = None


def idle_gpus(
    seen: Observation | None, quiet: Mapping[str, datetime] | None, count: int | None, gpu_at_most: float, term: timedelta, usd_per_hour: float | None
) -> IdleGpus | None:
    """
    ``quiet``: since when each readable GPU has been at or below ``gpu_at_most``. ``count``: how many it should have. None: not
    one of several computes, or none was idle for the whole ``term``; one that could not be read counts as neither.
    """
    if seen is None or quiet is None or not seen.verified:
        return None
    gpus = {gpu.uuid: gpu for gpu in seen.gpus}
    whole = max(len(gpus), count or 0)
    if whole < 2 or not any(gpu.work is not None and gpu.work > gpu_at_most for gpu in gpus.values()):
        return None
    idle = {uuid: since for uuid, since in quiet.items() if uuid in gpus and seen.ended_at - since >= term}
    if not idle:
        return None
    cost = usd_per_hour * 24 * len(idle) / whole if usd_per_hour is not None else None
    return IdleGpus(len(idle), whole, seen.ended_at - max(idle.values()), sum(gpus[uuid].held for uuid in idle), cost)


def idle_told(wasted: IdleGpus) -> str:
    held = f", memory taken on {wasted.held}" if wasted.held else ""
    cost = f", costs ${wasted.usd_per_day:,.2f} a day" if wasted.usd_per_day is not None else ""
    return f"{wasted.idle} of {wasted.count} GPUs idle for {span_text(wasted.idle_for)} while others work{held}{cost}"


def waste(seen: Observation | None, starved_above: float, usd_per_hour: float | None) -> Waste | None:
    """None: nothing waited for so long a share of the newest window, or there is none."""
    waits = [(share, tree) for tree in (seen.loaders if seen is not None else None) or () if (share := tree.waited) is not None]
    if not waits or max(share for share, _ in waits) < starved_above:
        return None
    worst = max(waits, key=lambda one: (one[0], one[1].id))[1]
    share = _told(worst)
    trees = [tree for _, tree in waits if not tree.off_gpu] or [worst]
    mean = sum(_told(tree) for tree in trees) / len(trees)
    return Waste(worst.id, share, worst.exact is not None, usd_per_hour * 24 * mean if usd_per_hour is not None else None)


def _told(tree: LoaderWindow) -> float:
    """For people: the job's own figure where there is one, else ours."""
    return min(max(tree.shown or 0.0, 0.0), 1.0)


def told(wasted: Waste) -> str:
    by = ", measured by the job" if wasted.measured else ""
    cost = f", costs ${wasted.usd_per_day:,.2f} a day" if wasted.usd_per_day is not None else ""
    return f"starved: waits for data {wasted.share:.0%} of the window{by}{cost}"
