"""What was listed, what we saw of each machine ourselves, and the protections seen on it."""

from collections.abc import Sequence

from sqlalchemy import delete, select

from reaper.model.resource import Place, ResourceId
from reaper.ports import KeptListing, Ledger, SeenProtection
from reaper.store import tables
from reaper.store.codec import Codec
from reaper.store.transactions import Transactions

_LISTINGS = Codec("listings", KeptListing)
_LEDGERS = Codec("ledgers", Ledger)
_PROTECTIONS = Codec("seen_protections", SeenProtection)


class Inventory(Transactions):
    def save_listings(self, listings: Sequence[KeptListing], ledgers: Sequence[Ledger], gone: Sequence[Place] = ()) -> None:
        """Replaces those of the same place or resource; the others stay, but the listings of ``gone``."""
        places = [{"place": str(kept.place), "value": _LISTINGS.encode(kept)} for kept in listings]
        seen = [{"resource": str(ledger.resource), "value": _LEDGERS.encode(ledger)} for ledger in ledgers]
        with self._write() as connection:
            for place in gone:
                connection.execute(delete(tables.listings).where(tables.listings.c.place == str(place)))
            self._put(connection, tables.listings, places)
            self._put(connection, tables.ledgers, seen)

    def listings(self) -> dict[Place, KeptListing]:
        with self._read() as connection:
            rows = connection.execute(select(tables.listings).order_by(tables.listings.c.place)).all()
        listings = [_LISTINGS.decode(value, place) for place, value in rows]
        return {kept.place: kept for kept in listings}

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
