"""What was listed, what we saw of each machine ourselves, and the protections seen on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, select

from reaper.errors import StoreError
from reaper.model.kinds.instance import Instance
from reaper.model.resource import Place, ResourceId
from reaper.ports import KeptListing, Ledger, SeenProtection
from reaper.store import tables
from reaper.store.codec import Codec
from reaper.store.transactions import Transactions

_A_ROW = 250
"""
Machines in one row. Encoding, reading back and writing each need a copy of a row, and a listing of a whole region as one row
is three times its size in memory at once; rows of this size (a third of a MB) are not noticed.
"""

_TOGETHER = 1000
"""Ledgers that are written by one call."""


@dataclass(frozen=True, slots=True)
class First(KeptListing):
    """A place's first row, with its first machines. ``rows``: how many more there are, so that one that is lost is noticed."""

    rows: int = 0


@dataclass(frozen=True, slots=True)
class More:
    """The machines of a place that the rows before have no room for. A version that does not know of it refuses the row and says so."""

    more: tuple[Instance, ...]


_FIRST = Codec("listings", First)
_MORE = Codec("listings", More)
_LEDGERS = Codec("ledgers", Ledger)
_PROTECTIONS = Codec("seen_protections", SeenProtection)


class Inventory(Transactions):
    def save_listings(self, listings: Sequence[KeptListing], ledgers: Sequence[Ledger], gone: Sequence[Place] = ()) -> None:
        """Replaces those of the same place or resource; the others stay, but the listings of ``gone``."""
        with self._write() as connection:
            for place in (*gone, *(kept.place for kept in listings)):
                self._forget.run(connection, _keys_of(place))
            for row in (row for kept in listings for row in _rows(kept)):  # one at a time: the driver takes a copy of all that it is handed at once
                self._put(connection, tables.listings, [row])
            for begin in range(0, len(ledgers), _TOGETHER):
                some = ledgers[begin : begin + _TOGETHER]
                self._put(connection, tables.ledgers, [{"resource": str(one.resource), "value": _LEDGERS.encode(one)} for one in some])

    def listings(self) -> dict[Place, KeptListing]:
        with self._read() as connection:
            rows = connection.execute(select(tables.listings).order_by(tables.listings.c.place)).all()
        listings: list[First] = []
        instances: list[list[Instance]] = []
        left = 0
        for key, value in rows:
            if _NEXT not in key and left == 0:
                listings.append(_FIRST.decode(value, key))
                instances.append(list(listings[-1].instances))
                left = listings[-1].rows
            elif _NEXT in key and left > 0:
                instances[-1] += _MORE.decode(value, key).more
                left -= 1
            else:
                break
        if left or len(listings) + sum(one.rows for one in listings) != len(rows):
            raise StoreError("the rows of listings do not fit together. Restore a backup; nothing is assumed in their place")
        return {
            one.place: KeptListing(one.place, tuple(found), one.listed_at, one.failed, one.empty_once)
            for one, found in zip(listings, instances, strict=True)
        }

    def ledgers(self) -> dict[ResourceId, Ledger]:
        with self._read() as connection:
            rows = connection.execute(select(tables.ledgers)).all()
        ledgers = [_LEDGERS.decode(value, resource) for resource, value in rows]
        return {ledger.resource: ledger for ledger in ledgers}

    def seen_protections(self) -> tuple[SeenProtection, ...]:
        table = tables.seen_protections
        with self._read() as connection:
            rows = connection.execute(select(table).order_by(table.c.resource, table.c.name)).all()
        return tuple(_PROTECTIONS.decode(value, resource, name) for resource, name, value in rows)

    def save_seen_protections(self, changed: Sequence[SeenProtection], gone: Sequence[SeenProtection]) -> None:
        """One that is in both stays: a protection errs to the safe side."""
        table = tables.seen_protections
        rows = [
            {"resource": str(seen.resource), "name": seen.name, "value": _PROTECTIONS.encode(seen)} for seen in changed
        ]
        with self._write() as connection:
            for seen in gone:
                connection.execute(
                    delete(table).where(table.c.resource == str(seen.resource), table.c.name == seen.name)
                )
            self._put(connection, table, rows)


_NEXT = "\n"
"""Between a place and the number of a further row of it; no place holds one, and it sorts before whatever a name may go on with."""


def _rows(kept: KeptListing) -> Iterator[dict[str, str]]:
    parts = [kept.instances[begin : begin + _A_ROW] for begin in range(0, len(kept.instances), _A_ROW)] or [()]
    first = First(kept.place, parts[0], kept.listed_at, kept.failed, kept.empty_once, rows=len(parts) - 1)
    yield {"place": str(kept.place), "value": _FIRST.encode(first)}
    for number, part in enumerate(parts[1:], start=1):
        yield {"place": f"{kept.place}{_NEXT}{number:06d}", "value": _MORE.encode(More(part))}


def _keys_of(place: Place) -> dict[str, str]:
    return {"place": str(place), "after": f"{place}{_NEXT}", "before": f"{place}{_NEXT}:"}
