"""What costs money and does no work, as one list: the dearest first. Nothing here is acted on."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reaper.decide.findings import span_text
from reaper.decide.waste import IdleGpus, Waste, idle_told, told
from reaper.model.decision import Action, Decision, Verdict
from reaper.model.kinds.disk import DiskState, KeptDisk, Leftover
from reaper.model.kinds.instance import Instance
from reaper.model.policy import Configuration, Protection, Tagged, environment_of, owner_of, project_of
from reaper.model.resource import Place, ResourceId
from reaper.model.signal import State

HOURS_A_MONTH = 730.0
"""As the clouds count it in their own price lists."""

DAYS_A_MONTH = HOURS_A_MONTH / 24

DISK, IDLE_GPUS, STARVED, NO_AGENT, HELD_BACK, EXEMPTION = "unattached disk", "idle GPUs", "starved", "no agent", "held back", "exemption without end"


@dataclass(frozen=True, slots=True)
class Keys:
    """Where owner, project and environment stand, in order; as in a policy."""

    owner: tuple[str, ...]
    project: tuple[str, ...]
    environment: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """
    One line. ``resource`` None: it is about several. ``age``: since when it has been so, as far as somebody looked; ``since_made``: since it was
    made. ``usd_per_month``: what it costs as it is; None: not known, which is not zero. ``acted_on``: whether a policy of ours would act on it.
    """

    what: str
    name: str
    because: str
    resource: ResourceId | None = None
    owner: str | None = None
    project: str | None = None
    environment: str | None = None
    age: timedelta | None = None
    since_made: timedelta | None = None
    usd_per_month: float | None = None
    acted_on: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as the newest cycle saw it. ``usd_per_hour``: None: no price is known."""

    instance: Instance
    decision: Decision
    usd_per_hour: float | None
    waste: Waste | None = None
    idle_gpus: IdleGpus | None = None
    running_since: datetime | None = None


def items(
    machines: Iterable[Machine], disks: Iterable[KeptDisk], listed_at: Callable[[ResourceId], datetime | None], leftovers: Iterable[Leftover],
    configuration: Configuration, keys: Keys, now: datetime,
) -> tuple[Item, ...]:  # fmt: skip
    """Dearest first; what has no known price after what has one, oldest first. ``listed_at``: the newest good listing of a disk's place."""
    all_ = tuple(machines)
    found = [
        *(item for kept in disks if (item := _disk(kept, listed_at(kept.disk.id), keys, now)) is not None),
        *(_leftover(one, keys, now) for one in leftovers),
        *(item for one in all_ for item in _machine(one, keys, now)),
        *_held_back(all_),
        *(_exemption(one, all_) for one in configuration.protections if one.until is None),
    ]
    return tuple(sorted(found, key=lambda i: (i.usd_per_month is None, -(i.usd_per_month or 0.0), -_seconds(i.age or i.since_made), i.what, i.name)))


def total(found: Iterable[Item]) -> tuple[float, int]:
    """Dollars a month of what lies about by itself, and how many of that have no known price. What is held back or exempt is not added: it may be at work."""
    own = [item for item in found if item.what not in (HELD_BACK, EXEMPTION, NO_AGENT)]
    return sum(item.usd_per_month or 0.0 for item in own), sum(item.usd_per_month is None for item in own)


def _disk(kept: KeptDisk, listed_at: datetime | None, keys: Keys, now: datetime) -> Item | None:
    disk = kept.disk
    if disk.state is not DiskState.AVAILABLE or disk.attachments or kept.missing_since is not None:
        return None
    age = kept.unattached_for(listed_at) if listed_at is not None else None
    size = f"{disk.size_gib} GiB" if disk.size_gib is not None else "size not known"
    notes = [
        f"last seen on {', '.join(kept.last_on)}" if kept.last_on else None,
        f"detached {disk.detached_at:%Y-%m-%d} by the cloud's word" if disk.detached_at is not None else None,
        f"of Kubernetes: {disk.claim}" if disk.claim is not None else None,
        f"made by {disk.made_by}" if disk.made_by is not None else None, disk.locked, *disk.notes,
    ]  # fmt: skip
    because = ", ".join((f"{size} {disk.type or ''}".strip(), "attached to nothing", *(note for note in notes if note)))
    made = max(now - disk.created_at, timedelta(0)) if disk.created_at is not None else None
    return _of(disk, keys, Item(DISK, disk.title, because, disk.id, age=age, since_made=made, usd_per_month=disk.monthly_usd))


def _leftover(one: Leftover, keys: Keys, now: datetime) -> Item:
    made = max(now - one.created_at, timedelta(0)) if one.created_at is not None else None
    size = f"{one.size_gib} GiB, " if one.size_gib is not None else ""
    return _of(one, keys, Item(one.what, one.name or one.id.native, f"{size}{one.because}", one.id, since_made=made, usd_per_month=one.monthly_usd))


def _machine(one: Machine, keys: Keys, now: datetime) -> Iterable[Item]:
    instance = one.instance
    since = max(now - one.running_since, timedelta(0)) if one.running_since is not None else None
    if one.idle_gpus is not None:
        usd = None if one.idle_gpus.usd_per_day is None else one.idle_gpus.usd_per_day * DAYS_A_MONTH
        yield _of(instance, keys, Item(IDLE_GPUS, instance.title, idle_told(one.idle_gpus), instance.id, age=one.idle_gpus.idle_for, usd_per_month=usd))
    if one.waste is not None:
        usd = None if one.waste.usd_per_day is None else one.waste.usd_per_day * DAYS_A_MONTH
        yield _of(instance, keys, Item(STARVED, instance.title, told(one.waste), instance.id, usd_per_month=usd))
    if one.decision.state is State.NO_AGENT and instance.state.counts and instance.gpus != 0:
        usd = None if one.usd_per_hour is None else one.usd_per_hour * HOURS_A_MONTH
        yield _of(instance, keys, Item(NO_AGENT, instance.title, "never had an agent: nobody knows whether it works", instance.id, age=since, usd_per_month=usd))


def _held_back(machines: Iterable[Machine]) -> Iterable[Item]:
    """Policies that would stop what is idle for its term, and could not, by the guard that held them."""
    held: dict[tuple[str, str], list[tuple[Machine, str]]] = {}
    for one in machines:
        decision = one.decision
        if decision.verdict is not Verdict.WAIT or decision.action is Action.START or decision.cause is None or decision.policy is None:
            continue
        decisive = next((finding for finding in decision.objections if finding.because == decision.because), None)
        if decisive is not None:
            held.setdefault((decision.policy, decisive.rule), []).append((one, decisive.because))
    for (policy, rule), several in sorted(held.items()):
        names = ", ".join(one.instance.title for one, _ in several[:3]) + (f" and {len(several) - 3} more" if len(several) > 3 else "")
        yield Item(HELD_BACK, policy, f"{rule} holds {names}: {several[0][1]}", usd_per_month=_sum(one for one, _ in several), acted_on=True)


def _exemption(protection: Protection, machines: Iterable[Machine]) -> Item:
    named = [one for one in machines if one.instance.state.counts and protection.what.matches(one.instance)]
    many = f"{len(named)} running machine{'s' if len(named) != 1 else ''}"
    return Item(EXEMPTION, protection.name, f"protects {many}: {protection.reason}", usd_per_month=_sum(named))


def _sum(machines: Iterable[Machine]) -> float | None:
    """None: of one of them no price is known, or there is none."""
    prices = [one.usd_per_hour for one in machines]
    known = [price for price in prices if price is not None]
    return sum(known) * HOURS_A_MONTH if known and len(known) == len(prices) else None


def _of(thing: Tagged, keys: Keys, item: Item) -> Item:
    return Item(
        item.what, item.name, item.because, item.resource, owner_of(thing, keys.owner), project_of(thing, keys.project),
        environment_of(thing, keys.environment), item.age, item.since_made, item.usd_per_month, item.acted_on,
    )  # fmt: skip


def _seconds(span: timedelta | None) -> float:
    return span.total_seconds() if span is not None else 0.0


def age_told(item: Item) -> str:
    """For people: how long it has been seen so, and how old it is."""
    made = f"made {span_text(item.since_made)} ago" if item.since_made is not None else ""
    return ", ".join(part for part in (span_text(item.age) if item.age is not None else "", made) if part)


def listed_at_of(shelves: Mapping[Place, datetime]) -> Callable[[ResourceId], datetime | None]:
    return lambda id: shelves.get(Place(id.cloud, id.account, id.place))
