"""
Which machines are owed a start by their schedule, and when: from what we stopped, what was done since, and how long they took before.

A start is owed once for each stretch outside hours. What was begun, or will not be done, is written down with the hours it was for.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reaper.decide.closing import on_the_wall
from reaper.decide.facts import Morning
from reaper.decide.findings import span_text
from reaper.decide.mornings import BOOTS_KEPT, Waiting, begins, boot_of, in_order, place_of, ready_at
from reaper.decide.schedule import spell
from reaper.decide.undo import left_stopped, refuse_start
from reaper.model.kinds.instance import AT_REST, Instance, InstanceState
from reaper.model.plan import Attempt, Outcome
from reaper.model.policy import Hours
from reaper.model.resource import ResourceId
from reaper.ports import Store
from reaper.service.gather import Gathering

_BOOTS, _HANDLED = "boot-times", "mornings"

_KEPT_FOR = timedelta(days=14)

_OWED_FOR = timedelta(days=7)
"""After the morning that it was owed for: nobody waits for a start of last month's. Well within what is kept of those that were given up."""

_BACK = 120
"""Attempts of one machine that are looked through for the stop it lies under: tries of a start may have followed it."""


_FEW, _TOGETHER = 20, 3000
"""From more machines than the first on they are asked for together, that many attempts at once."""


@dataclass(frozen=True, slots=True)
class _Owed:
    instance: Instance
    hours: Hours
    stop: Attempt
    ready_at: datetime
    until: datetime | None


def read(store: Store, gathering: Gathering, now: datetime, starting: frozenset[ResourceId] = frozenset()) -> dict[ResourceId, Morning]:
    """``starting``: machines whose start is on its way already. Raises StoreError."""
    lying = [instance for instance in gathering.instances if _may_be_owed(instance, gathering, starting)]
    if not lying:
        return {}
    handled, lasts = _handled(store), _lasts(store, {instance.id for instance in lying})
    found = [one for instance in lying if (one := _owed(gathering, instance, lasts.get(instance.id), handled, now)) is not None]
    if not found:
        return {}
    boots = boot_times(store)
    waiting = {one.instance.id: _waiting(one, gathering, boots.get(str(one.instance.id), ())) for one in found}
    configuration = gathering.configuration
    when = begins(list(waiting.values()), configuration.budgets.starts, configuration.cycle)
    refused = {one.instance.id: refuse_start(one.stop, one.instance) if one.instance.state in AT_REST else None for one in found}
    order = {one.resource: place for place, one in enumerate(in_order(waiting.values()))}
    mornings = {}
    for one in found:
        id = one.instance.id
        mornings[id] = Morning(
            hours=one.hours.name, stop=one.stop.id, ready_at=one.ready_at, begins_at=max(when[id], one.stop.intent_at), until=one.until,
            because=_because(one, waiting[id]), refused=refused[id],
            waits=_waits(waiting[id], [w for w in waiting.values() if refused[w.resource] is None], gathering, starting), place=order[id],
        )  # fmt: skip
    return mornings


def _may_be_owed(instance: Instance, gathering: Gathering, starting: frozenset[ResourceId]) -> bool:
    if instance.state not in (*AT_REST, InstanceState.STOPPING, InstanceState.SUSPENDING) or instance.id in starting:
        return False
    hours = gathering.hours_of(instance.id)
    return hours is not None and hours.schedule.starts


def _lasts(store: Store, resources: set[ResourceId]) -> dict[ResourceId, Attempt]:
    """The newest thing that we did with each of them. Of many they are read together, as far back as that goes."""
    found: dict[ResourceId, Attempt] = {}
    whole = False
    if len(resources) > _FEW:
        several = store.attempts(limit=_TOGETHER)
        whole = len(several) < _TOGETHER
        for attempt in several:
            if _counts(attempt) and attempt.resource in resources:
                found.setdefault(attempt.resource, attempt)
    for resource in () if whole else resources - found.keys():
        last = next((a for a in store.attempts(resource=resource, limit=_BACK) if _counts(a)), None)
        if last is not None:
            found[resource] = last
    return found


def _counts(attempt: Attempt) -> bool:
    """What was done, and a stop that stands although its snapshots came to nothing."""
    return attempt.outcome is Outcome.DONE or left_stopped(attempt)


def _owed(gathering: Gathering, instance: Instance, last: Attempt | None, handled: dict[str, str], now: datetime) -> _Owed | None:
    hours = gathering.hours_of(instance.id)
    if hours is None or last is None or not last.action.stops or last.owed_by is None:
        return None
    at = ready_at(hours, last.intent_at)
    if at == last.intent_at:  # hours were edited since, and it lay while they ended by what they say now: the next begin is its morning
        ended = spell(hours.schedule, at).until
        at = spell(hours.schedule, ended).until if ended is not None and ended <= now else at
    if at is None or handled.get(str(instance.id), "") >= at.isoformat():
        return None
    if now - at > _OWED_FOR:
        return None
    until = spell(hours.schedule, max(at, last.intent_at)).until
    while until is not None and now >= until:  # nobody was there to start it: what should be true now is asked of the newest hours
        at = spell(hours.schedule, until).until
        if at is None:
            return None
        until = spell(hours.schedule, at).until
    return _Owed(instance, hours, last, at, until)


def _waiting(one: _Owed, gathering: Gathering, boots: Sequence[float]) -> Waiting:
    id = one.instance.id
    tags = {key.casefold(): value for key, value in one.instance.tags.items()}
    return Waiting(id, one.ready_at, gathering.gang_of(id) or str(id), place_of(tags.get(one.hours.start_order.casefold())), boot_of(boots))


def _waits(one: Waiting, all_: Sequence[Waiting], gathering: Gathering, starting: frozenset[ResourceId]) -> str | None:
    """The machine of its group that has to be up before it; None: none has."""
    earlier = [other.resource for other in all_ if other.group == one.group and other.place < one.place]
    hours = gathering.hours_of(one.resource)
    for id in starting:
        instance = gathering.instance(id)
        if instance is not None and hours is not None and gathering.gang_of(id) == one.group:
            tags = {key.casefold(): value for key, value in instance.tags.items()}
            if place_of(tags.get(hours.start_order.casefold())) < one.place:
                earlier.append(id)
    first = min(earlier, default=None)
    instance = gathering.instance(first) if first is not None else None
    return f"{instance.title} of the same job starts first" if instance is not None else None


def _because(one: _Owed, waiting: Waiting) -> str:
    zone = one.hours.schedule.zone
    return (
        f"hours {one.hours.name} begin at {on_the_wall(one.ready_at, one.hours)} ({zone}), it takes {span_text(waiting.boot)} to be ready, "
        f"and we stopped it at {on_the_wall(one.stop.intent_at, one.hours)}"
    )


# --- what is remembered ----------------------------------------------------------------------------------------------


def _handled(store: Store) -> dict[str, str]:
    """By machine, the begin of the hours for which its start was begun or given up."""
    text = store.fact(_HANDLED)
    return dict(json.loads(text)) if text is not None else {}


def handled(store: Store, resource: ResourceId) -> datetime | None:
    """The begin of the hours for which its newest start was begun or given up; None: none was."""
    text = _handled(store).get(str(resource))
    return datetime.fromisoformat(text) if text is not None else None


def handle(store: Store, resource: ResourceId, morning: Morning, now: datetime) -> None:
    """Nothing is owed any more for these hours: its start is begun, or will not be."""
    before = (now - _KEPT_FOR).isoformat()
    kept = {id: at for id, at in _handled(store).items() if at >= before}
    store.set_facts({_HANDLED: json.dumps({**kept, str(resource): morning.ready_at.isoformat()})})


def boot_times(store: Store) -> dict[str, list[float]]:
    """How long the last boots of each machine took, from the call to its agent's report of every GPU, in seconds; the newest last."""
    text = store.fact(_BOOTS)
    return dict(json.loads(text)) if text is not None else {}


def learn(store: Store, resource: ResourceId, took: timedelta) -> None:
    known = boot_times(store)
    seconds = [*known.get(str(resource), []), round(took.total_seconds(), 1)]
    store.set_facts({_BOOTS: json.dumps({**known, str(resource): seconds[-BOOTS_KEPT:]})})
