"""When machines that a schedule wants back are started, so that they are ready when hours begin: in order, and not all at once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reaper.decide.schedule import spell
from reaper.model.policy import CountBudget, Hours
from reaper.model.resource import ResourceId

USUAL_BOOT = timedelta(minutes=5)
"""Of a machine whose boot we have not seen yet: GPU images take a few minutes until their agent reports every GPU."""

LONGEST_BOOT = timedelta(minutes=30)
"""A boot that took longer was held up by something else (no capacity, a fault); it is no reason to start so early every day."""

LONGEST_QUEUE = timedelta(hours=2)
"""However slow the budget's rate: nothing is started earlier than that for those behind it."""

BOOTS_KEPT = 5

LAST = math.inf
"""The place of a machine whose tag gives none."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One owed start. ``group``: what it starts in order with; ``place``: the lower the earlier. ``boot``: how long it takes."""

    resource: ResourceId
    ready_at: datetime
    group: str
    place: float
    boot: timedelta


def boot_of(seen: Sequence[float]) -> timedelta:
    """From how long the last boots took, in seconds: the longest, so that it is ready on most mornings and not on half of them."""
    return min(timedelta(seconds=max(seen)), LONGEST_BOOT) if seen else USUAL_BOOT


def ready_at(hours: Hours, stopped_at: datetime) -> datetime | None:
    """When hours want a machine back that was stopped then, by what they say now; None: not within a year."""
    now_was = spell(hours.schedule, stopped_at)
    if not now_was.on:
        return now_was.until
    if not hours.start_also or now_was.until is None:
        return stopped_at  # they were edited since, and would not have let it be stopped
    return spell(hours.schedule, now_was.until).until


def place_of(tag: str | None) -> float:
    """A tag's number; one that is missing or is none comes last."""
    try:
        place = float(tag) if tag is not None else LAST
    except ValueError:
        return LAST
    return place if math.isfinite(place) else LAST


def in_order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Who is begun first, when not all can be."""
    return sorted(waiting, key=lambda one: (one.ready_at, one.place, one.group, one.resource))


def begins(waiting: Sequence[Waiting], budget: CountBudget, cycle: timedelta) -> Mapping[ResourceId, datetime]:
    """
    When to start each: its own boot before it has to be ready, the boots of those in its group that come after it, the time
    that the budget's rate takes for those behind it, and a cycle, since nothing begins between two.
    """
    found: dict[ResourceId, datetime] = {}
    for moment in {one.ready_at for one in waiting}:
        together = in_order(one for one in waiting if one.ready_at == moment)
        for behind, one in enumerate(reversed(together)):
            later = [other for other in together if other.group == one.group and other.place > one.place]
            chain = sum((max(o.boot for o in later if o.place == place) for place in {o.place for o in later}), timedelta(0))
            found[one.resource] = moment - one.boot - chain - _queue(behind, budget, cycle) - cycle
    return found


def _queue(behind: int, budget: CountBudget, cycle: timedelta) -> timedelta:
    """How long those behind take to begin, at the rate that the budget allows."""
    waits = [timedelta(0)]
    if budget.per_minute:
        waits.append(behind // budget.per_minute * timedelta(minutes=1))
    if budget.per_cycle:
        waits.append(behind // budget.per_cycle * cycle)
    return min(max(waits), LONGEST_QUEUE)
