"""
What exists, as of the newest good listing of every place, and what we saw of it with our own eyes.

A failed place keeps its last listing with its age; an empty answer where there were
resources is a failure until it was seen twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from reaper.errors import CloudError
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.resource import Place, ResourceId
from reaper.ports import Cloud, KeptListing, Ledger, Listed, Store

MISSED = timedelta(minutes=15)
"""How long a machine that was up, and that a good listing no longer shows, is taken for there and unknown: pages get lost."""

LEFT_OUT = timedelta(days=1)
"""How long a place with machines that nobody lists any more is held as failed before it is forgotten."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """``problems``: what could not be listed at all, one sentence each, beside the failed places in ``listings``."""

    listings: dict[Place, KeptListing] = field(default_factory=dict)
    ledgers: dict[ResourceId, Ledger] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def instances(self) -> dict[ResourceId, tuple[Instance, KeptListing]]:
        found: dict[ResourceId, tuple[Instance, KeptListing]] = {}
        for listing in self.listings.values():
            for instance in listing.instances:
                twice = found.get(instance.id)
                # Which of the two tells the truth cannot be known, so neither does.
                why = f"{instance.id} is listed in {twice[1].place} and in {listing.place}" if twice is not None else listing.failed
                found[instance.id] = (instance, listing if why == listing.failed else replace(listing, failed=why))
        return found

    @property
    def failed(self) -> tuple[KeptListing, ...]:
        return tuple(listing for listing in self.listings.values() if listing.failed is not None)


def kept(store: Store) -> Inventory:
    """What the store holds, without asking any cloud."""
    return Inventory(store.listings(), store.ledgers())


def refresh(clouds: Sequence[Cloud], store: Store, now: datetime, before: Inventory | None = None) -> Inventory:
    """List every cloud, merge with what was known, save. One cloud that cannot be asked changes nothing for another."""
    known = before if before is not None else kept(store)
    listings = dict(known.listings)
    problems: list[str] = []
    told: list[Instance] = []
    for cloud in clouds:
        try:
            answers = cloud.list()
        except CloudError as error:
            problems.append(f"{cloud.name}: {error}")
            for place, listing in known.listings.items():
                if place.cloud == cloud.name:
                    listings[place] = replace(listing, failed=str(error))
            continue
        for answer in answers:
            old = known.listings.get(answer.place)
            if answer.skipped is None:
                listings[answer.place] = merged(old, answer, now, known.ledgers)
                told += answer.instances if listings[answer.place].failed is None else ()
            elif old is not None and old.instances:
                listings[answer.place] = replace(old, failed=answer.skipped)
            else:
                listings.pop(answer.place, None)
        # A place that is no longer answered for is not gone: nobody said so. But one that never had anything, and one that
        # was left out for a day, is what the operator took off the list.
        answered = {answer.place for answer in answers}
        for place, listing in known.listings.items():
            if place.cloud == cloud.name and place not in answered:
                if not listing.instances or now - listing.listed_at > LEFT_OUT:
                    del listings[place]
                else:
                    listings[place] = replace(listing, failed="no longer listed: is its region still configured?")
    ledgers = dict(known.ledgers)
    for instance in told:
        ledgers[instance.id] = seen(ledgers.get(instance.id), instance, now)
    changed = tuple(ledgers[i] for i in ledgers if ledgers[i] != known.ledgers.get(i))
    store.save_listings(tuple(listings.values()), changed, tuple(known.listings.keys() - listings.keys()))
    return Inventory(listings, ledgers, tuple(problems))


def merged(old: KeptListing | None, answer: Listed, now: datetime, ledgers: Mapping[ResourceId, Ledger]) -> KeptListing:
    """
    A place's listing after one more answer. A machine that was up and is left out of it stays for a while, in a state that is
    not known: were it taken for gone at once, a page that got lost would let the rest of its job be stopped.
    """
    if answer.failed is not None:
        if old is None:
            return KeptListing(answer.place, (), now, failed=answer.failed)
        return replace(old, failed=answer.failed)
    if old is not None and old.instances and not answer.instances and not old.empty_once:
        return replace(old, failed="it answered with nothing where there were machines", empty_once=True)
    told = {instance.id for instance in answer.instances}
    missed = tuple(
        instance if instance.state is InstanceState.UNKNOWN else replace(instance, state=InstanceState.UNKNOWN, changed_at=now)
        for instance in (old.instances if old is not None else ())
        if instance.id not in told and instance.state.counts and _lingers(instance, ledgers.get(instance.id), now)
    )
    return KeptListing(answer.place, (*answer.instances, *missed), now)


def _lingers(instance: Instance, ledger: Ledger | None, now: datetime) -> bool:
    """From the first good listing that left it out on: before that its place may have failed for hours, and that is no sight of its end."""
    if instance.state is not InstanceState.UNKNOWN:
        return True
    moments = (instance.changed_at, ledger.last_seen_at if ledger is not None else None)
    return any(at is not None and now - at < MISSED for at in moments)


def seen(ledger: Ledger | None, instance: Instance, now: datetime) -> Ledger:
    """Our own record of one machine after one more sight. A start that the cloud shows begins a new run of it."""
    running = instance.state in (InstanceState.RUNNING, InstanceState.PENDING)
    if ledger is None:
        return Ledger(instance.id, now, now, now if running else None, instance.launched_at)
    again = ledger.running_since is None or ledger.launched_at != instance.launched_at
    since = (now if again else ledger.running_since) if running else None
    return replace(ledger, last_seen_at=now, running_since=since, launched_at=instance.launched_at)
