"""What a machine wastes that waits for its data: a share of its window, and of its price. It is reported, and nothing is done about it."""

from dataclasses import dataclass

from reaper.model.signal import LoaderWindow, Observation

SHIPPED_ABOVE = 0.30  # where no policy says otherwise


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
