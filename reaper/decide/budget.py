"""
How much may happen at once: pure, and the strictest limit wins.

An absent limit is unlimited; one that could not be read refused the whole configuration
before it got here. A gang is admitted whole or not at all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from zoneinfo import ZoneInfo

from reaper.model.decision import Action
from reaper.model.plan import Debit
from reaper.model.policy import Budgets, CountBudget

DEBITS_OF = timedelta(hours=25)
"""A budget's longest span is a day in a named zone, and the day on which clocks go back has 25 hours."""

TAKEN = (Action.SUSPEND, Action.HIBERNATE, Action.STOP, Action.STOP_AND_SNAPSHOT, Action.TERMINATE)
"""What is paid for from the budget of stops, whatever else follows it."""

_COUNTS = {
    "starts": (Action.START,),
    "stops": TAKEN,
    "snapshots": (Action.STOP_AND_SNAPSHOT, Action.TERMINATE),
    "deletes": (Action.TERMINATE,),
}
"""By budget, the actions that it binds and that are counted in it."""

Item = tuple[Action, float | None]
"""What one machine of a group would take: the action, and dollars an hour (None: not known)."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one group (a machine, or a gang) would take: how many actions, and dollars an hour (None: not known)."""

    count: int
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit with what is used of it. ``most`` in actions, or dollars an hour taken down. ``window``: a short label."""

    window: str
    name: str
    most: float
    used: float
    dollars: bool = False

    @property
    def left(self) -> float:
        return max(self.most - self.used, 0.0)


def names(action: Action) -> tuple[str, ...]:
    """The budgets that bind an action."""
    return tuple(name for name, actions in _COUNTS.items() if action in actions)


def counted_with(action: Action) -> tuple[Action, ...]:
    """Every action whose debits are in a budget that binds this one, itself included."""
    return tuple(dict.fromkeys(other for name in names(action) for other in _COUNTS[name]))


def asks(items: Sequence[Item]) -> dict[str, Ask]:
    """What a group asks of each budget that binds one of its actions."""
    found: dict[str, Ask] = {}
    for name, actions in _COUNTS.items():
        mine = [price for action, price in items if action in actions]
        known = [price for price in mine if price is not None]
        if mine:
            found[name] = Ask(len(mine), sum(known) if known else None)
    return found


def refused(
    asked: Mapping[str, Ask], budgets: Budgets, debits: Sequence[Debit], now: datetime, running: int, taken: Mapping[str, Ask] = MappingProxyType({})
) -> str | None:
    """Why a group does not fit into every budget that binds it; None when it does. ``taken``: what this cycle admitted already."""
    for name, ask in asked.items():
        counted = [debit for debit in debits if debit.action in _COUNTS[name]]
        why = refusal(ask, limits(budget_of(name, budgets), counted, now, running), taken.get(name, Ask(0, 0.0)))
        if why is not None:
            return _said(name, why)
    return None


def refused_this_cycle(asked: Mapping[str, Ask], budgets: Budgets, taken: Mapping[str, Ask]) -> str | None:
    """The limits on one cycle, beside the others; None when it fits."""
    for name, ask in asked.items():
        why = per_cycle(budget_of(name, budgets), ask, taken.get(name, Ask(0, 0.0)))
        if why is not None:
            return _said(name, why)
    return None


def left(budgets: Budgets, debits: Sequence[Debit], now: datetime, running: int) -> dict[tuple[str, str], float]:
    """What is left of each limited budget of what is taken away, by (action, window)."""
    found: dict[tuple[str, str], float] = {}
    for name, word in (("stops", "stop"), ("snapshots", "snapshot"), ("deletes", "delete")):
        counted = [debit for debit in debits if debit.action in _COUNTS[name]]
        found |= {(word, limit.window): limit.left for limit in limits(budget_of(name, budgets), counted, now, running)}
    return found


def together(taken: Mapping[str, Ask], asked: Mapping[str, Ask]) -> dict[str, Ask]:
    """What was taken, and this as well."""
    found = dict(taken)
    for name, ask in asked.items():
        before = found.get(name, Ask(0, 0.0))
        found[name] = Ask(before.count + ask.count, (before.usd_per_hour or 0.0) + (ask.usd_per_hour or 0.0))
    return found


def budget_of(name: str, budgets: Budgets) -> CountBudget:
    found: CountBudget = getattr(budgets, name)
    return found


def _said(name: str, why: str) -> str:
    return why if name in ("stops", "starts") else f"budget of {name}: {why}"


def limits(budget: CountBudget, debits: Sequence[Debit], now: datetime, running: int) -> tuple[Limit, ...]:
    """
    Every limit that applies now. ``running``: running machines in scope. Debits may reach further back than any limit.

    An hour and a minute are the last ones; a day is the calendar day of the budget's zone, so it may have 23 or 25 hours.
    """

    def since(moment: datetime) -> int:
        return sum(1 for debit in debits if debit.at > moment)

    hour, minute = now - timedelta(hours=1), now - timedelta(minutes=1)
    # Where clocks are set back over midnight it comes twice: the day begins with the first one (fold 0).
    midnight = now.astimezone(ZoneInfo(budget.zone)).replace(hour=0, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)
    today = sum(1 for debit in debits if debit.at >= midnight)
    found = []
    if budget.per_minute is not None:
        found.append(Limit("minute", "per minute", budget.per_minute, since(minute)))
    if budget.per_hour is not None:
        found.append(Limit("hour", "per hour", budget.per_hour, since(hour)))
    if budget.per_day is not None:
        found.append(Limit("day", "per day", budget.per_day, today))
    if budget.share_per_hour is not None:
        most = max(math.floor(budget.share_per_hour * running), budget.at_least)
        found.append(Limit("share", f"{budget.share_per_hour:.0%} of {running} running an hour", most, since(hour)))
    if budget.usd_per_hour is not None:
        spent = sum(debit.usd_per_hour or 0.0 for debit in debits if debit.at > hour)
        found.append(Limit("usd", "dollars an hour taken down in an hour", budget.usd_per_hour, spent, dollars=True))
    return tuple(found)


def refusal(ask: Ask, applying: Sequence[Limit], taken: Ask = Ask(0, 0.0)) -> str | None:
    """
    Why ``ask`` does not fit beside what this cycle already admitted (``taken``); None when it fits.

    A group larger than a count limit as a whole is admitted when that limit is unused. An unknown price asks nothing of
    the dollar limit: callers price unknowns as the dearest known of their family first.
    """
    for limit in applying:
        if limit.dollars:
            if ask.usd_per_hour is None:
                continue
            used, more = limit.used + (taken.usd_per_hour or 0.0), ask.usd_per_hour
        else:
            used, more = limit.used + taken.count, float(ask.count)
        if used + more <= limit.most:
            continue
        if not limit.dollars and ask.count > 1 and used == 0 and limit.most > 0:
            continue
        unit = "$" if limit.dollars else ""
        return f"{limit.name}: {unit}{used:g} of {unit}{limit.most:g} used"
    return None


def per_cycle(budget: CountBudget, ask: Ask, taken: Ask) -> str | None:
    """The limit on one cycle, beside the others; None when it fits."""
    if budget.per_cycle is None or taken.count + ask.count <= budget.per_cycle:
        return None
    if ask.count > 1 and taken.count == 0 and budget.per_cycle > 0:
        return None
    return f"per cycle: {taken.count} of {budget.per_cycle} used"


def price_of(type_: str, prices: dict[str, float], listed: float | None = None) -> float | None:
    """
    Dollars an hour: the operator's own price first, then the list price (``listed``), then the dearest known of its family
    ("g5.xlarge": "g5"); None: none known.
    """
    if type_ in prices:
        return prices[type_]
    if listed is not None:
        return listed
    family = type_.partition(".")[0]
    known = [price for name, price in prices.items() if name.partition(".")[0] == family]
    return max(known) if known else None
