"""Disks, and what else lies about: listed a few times an hour, and remembered for as long as we see them. Reads only."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from reaper import log
from reaper.decide.shelves import EVERY, FORGOTTEN, left_out, seen
from reaper.errors import CloudError
from reaper.model.kinds.disk import KeptDisk, Leftover
from reaper.model.resource import Place, ResourceId
from reaper.ports import Clock, Disks, KeptShelf, Shelf, Store

_log = log.get(__name__)


_PLURAL = {"snapshot": "snapshots", "address": "addresses", "load balancer": "load balancers"}
"""How a sentence begins that says why leftovers of a kind could not be read; what was known of the others goes with their listing."""

_SECONDS = re.compile(r"\d+ s\b")


@dataclass(slots=True)
class Room:
    """All of it, as the store has it. ``problems``: clouds that could not be asked at all, a sentence each."""

    shelves: dict[Place, KeptShelf] = field(default_factory=dict)
    disks: dict[ResourceId, KeptDisk] = field(default_factory=dict)
    leftovers: dict[ResourceId, Leftover] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def kept(store: Store) -> Room:
    return Room(store.shelves(), store.disks(), store.leftovers())


class ShelfWatch:
    """``clouds``: those that can list disks. One listing goes on at a time."""

    def __init__(self, store: Store, clouds: Iterable[Disks], clock: Clock) -> None:
        self._store, self._clouds, self._clock = store, tuple(clouds), clock
        self._next: float | None = None
        self._said: frozenset[str] = frozenset()

    def step(self) -> Room | None:
        """List where it is time. None: not yet, or nothing can list disks."""
        if not self._clouds or (self._next is not None and self._clock.monotonic() < self._next):
            return None
        self._next = self._clock.monotonic() + EVERY.total_seconds()
        return self.look()

    def look(self) -> Room:
        """List now, merge with what was known, save. One cloud that cannot be asked changes nothing for another."""
        before = kept(self._store)
        room = Room(dict(before.shelves), dict(before.disks), dict(before.leftovers))
        problems: list[str] = []
        for cloud in self._clouds:
            try:
                shelves = cloud.shelves()
            except CloudError as error:
                problems.append(f"{cloud.name}: {error}")
                for place, shelf in before.shelves.items():
                    if place.cloud == cloud.name:
                        room.shelves[place] = replace(shelf, failed=str(error))
                continue
            for answer in shelves:
                merge(room, answer, self._clock.now())
            absent = {place for place in before.shelves if place.cloud == cloud.name} - {answer.place for answer in shelves}
            for place in absent:
                _not_answered(room, place, self._clock.now())
        watched = {cloud.name for cloud in self._clouds}
        for place in [place for place in before.shelves if place.cloud not in watched]:
            _not_answered(room, place, self._clock.now())
        room.problems = tuple(problems)
        self._say(room)
        self._save(before, room)
        return room

    def _save(self, before: Room, room: Room) -> None:
        gone: list[Place | ResourceId] = [*(before.shelves.keys() - room.shelves.keys()), *(before.disks.keys() - room.disks.keys()), *(before.leftovers.keys() - room.leftovers.keys())]
        self._store.save_shelves(
            [one for place, one in room.shelves.items() if before.shelves.get(place) != one],
            [one for id, one in room.disks.items() if before.disks.get(id) != one],
            [one for id, one in room.leftovers.items() if before.leftovers.get(id) != one], gone,
        )  # fmt: skip

    def _say(self, room: Room) -> None:
        """Each trouble once, and again when it came back."""
        told = frozenset((*room.problems, *(f"{s.place}: {s.failed}" for s in room.shelves.values() if s.failed), *(w for s in room.shelves.values() for w in s.unread)))
        told = frozenset(_SECONDS.sub("", why) for why in told)
        for why in sorted(told - self._said):
            _log.warning("disks not readable; tried again in a quarter of an hour", because=why)
        self._said = told


def merge(room: Room, shelf: Shelf, now: datetime) -> None:
    """
    One place's answer into what is known. A place that failed keeps its disks and their age; one that answers with nothing where there were
    disks is not believed until it says so twice; what cannot be read of the rest is left as it was.
    """
    old = room.shelves.get(shelf.place)
    if shelf.failed is not None:
        room.shelves[shelf.place] = replace(old, failed=shelf.failed) if old is not None else KeptShelf(shelf.place, now, failed=shelf.failed)
        return
    here = {id: one for id, one in room.disks.items() if _in(id, shelf.place)}
    if old is not None and here and not shelf.disks and not old.empty_once:
        room.shelves[shelf.place] = replace(old, failed="it answered with nothing where there were disks", empty_once=True)
        return
    last = old.listed_at if old is not None and (old.failed is None or here) else None
    for disk in shelf.disks:
        room.disks[disk.id] = seen(here.pop(disk.id, None), disk, last, now)
    for id, one in here.items():
        remembered = left_out(one, last, now) if last is not None else None
        if remembered is None:
            del room.disks[id]
        else:
            room.disks[id] = remembered
    for left in [left for id, left in room.leftovers.items() if _in(id, shelf.place)]:
        if not any(why.startswith(_PLURAL.get(left.what, left.what)) for why in shelf.unread):
            del room.leftovers[left.id]
    room.leftovers.update({one.id: one for one in shelf.leftovers})
    room.shelves[shelf.place] = KeptShelf(shelf.place, now, unread=shelf.unread)


def _not_answered(room: Room, place: Place, now: datetime) -> None:
    """A place that nobody tells of any more (taken off the list, switched off): held as failed for a day, and forgotten then."""
    shelf = room.shelves[place]
    if now - shelf.listed_at <= FORGOTTEN:
        room.shelves[place] = replace(shelf, failed="no longer listed: is its region still configured?")
        return
    del room.shelves[place]
    for id in [id for id in room.disks if _in(id, place)]:
        del room.disks[id]
    for id in [id for id in room.leftovers if _in(id, place)]:
        del room.leftovers[id]


def _in(id: ResourceId, place: Place) -> bool:
    return (id.cloud, id.account, id.place) == (place.cloud, place.account, place.name)
