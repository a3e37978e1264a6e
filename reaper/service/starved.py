"""
Says in the log which machines have been starved for long, and which work on some of their GPUs only: once a day each, since
it is advice and not an alarm.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from reaper import log
from reaper.decide.waste import IdleGpus, Waste, idle_told, told
from reaper.model.resource import ResourceId

AFTER = timedelta(minutes=30)
AGAIN_AFTER = timedelta(days=1)

_log = log.get(__name__)

_Wasted = TypeVar("_Wasted")


class _DailyAdvice(Generic[_Wasted]):
    """Remembers since when machines waste something, of those alone; a new process begins anew."""

    def __init__(self) -> None:
        self._since: dict[ResourceId, datetime] = {}
        self._said: dict[ResourceId, datetime] = {}

    def step(self, wasted: Mapping[ResourceId, _Wasted], now: datetime) -> tuple[ResourceId, ...]:
        """One cycle's machines; returns those that were said now."""
        self._since = {id: self._since.get(id, now) for id in wasted}
        self._said = {id: at for id, at in self._said.items() if now - at < AGAIN_AFTER}
        due = [id for id, since in self._since.items() if now - since >= AFTER and id not in self._said]
        for id in due:
            self._said[id] = now
            self._say(id, wasted[id])
        return tuple(due)

    def _say(self, id: ResourceId, wasted: _Wasted) -> None:
        raise NotImplementedError


class StarvedWatch(_DailyAdvice[Waste]):
    def _say(self, id: ResourceId, wasted: Waste) -> None:
        _log.warning(
            "machine starved", resource=str(id), because=told(wasted), tree=wasted.tree, usd_per_day=_cents(wasted.usd_per_day),
            remedy="more loader workers, a faster path to the data, or a smaller machine; it is never stopped for this",
        )  # fmt: skip


class UnusedWatch(_DailyAdvice[IdleGpus]):
    def _say(self, id: ResourceId, wasted: IdleGpus) -> None:
        _log.warning(
            "gpus idle in a busy machine", resource=str(id), because=idle_told(wasted), idle=wasted.idle, of=wasted.count,
            usd_per_day=_cents(wasted.usd_per_day), remedy="a smaller machine, or a second job beside the first; it is never stopped for this",
        )  # fmt: skip


def _cents(usd: float | None) -> float | None:
    return round(usd, 2) if usd is not None else None
