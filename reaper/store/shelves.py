"""Disks as last listed, what we saw of each ourselves, and what else lies about."""

from collections.abc import Collection, Sequence
from typing import TypeVar

from sqlalchemy import Table, bindparam, delete, select

from reaper.model.kinds.disk import KeptDisk, Leftover
from reaper.model.resource import Place, ResourceId
from reaper.ports import KeptShelf
from reaper.store import tables
from reaper.store.codec import Codec
from reaper.store.transactions import Transactions

T = TypeVar("T")

_SHELVES = Codec("shelves", KeptShelf)
_DISKS = Codec("disks", KeptDisk)
_LEFTOVERS = Codec("leftovers", Leftover)

_TOGETHER = 1000
"""Rows that are encoded and handed to the driver at once."""


class Shelves(Transactions):
    def save_shelves(
        self, shelves: Sequence[KeptShelf], disks: Sequence[KeptDisk], leftovers: Sequence[Leftover], gone: Collection[Place | ResourceId] = ()
    ) -> None:
        """As in the port."""
        with self._write() as connection:
            for table, keys in (
                (tables.shelves, [str(one) for one in gone if isinstance(one, Place)]),
                (tables.disks, [str(one) for one in gone if isinstance(one, ResourceId)]),
                (tables.leftovers, [str(one) for one in gone if isinstance(one, ResourceId)]),
            ):
                column = next(iter(table.primary_key.columns))
                if keys:
                    connection.execute(delete(table).where(column == bindparam("gone")), [{"gone": key} for key in keys])
            self._put(connection, tables.shelves, [{"place": str(one.place), "value": _SHELVES.encode(one)} for one in shelves])
            for begin in range(0, len(disks), _TOGETHER):
                self._put(connection, tables.disks, [{"resource": str(one.disk.id), "value": _DISKS.encode(one)} for one in disks[begin : begin + _TOGETHER]])
            for begin in range(0, len(leftovers), _TOGETHER):
                some = leftovers[begin : begin + _TOGETHER]
                self._put(connection, tables.leftovers, [{"resource": str(one.id), "value": _LEFTOVERS.encode(one)} for one in some])

    def shelves(self) -> dict[Place, KeptShelf]:
        return {one.place: one for one in self._all(tables.shelves, _SHELVES)}

    def disks(self) -> dict[ResourceId, KeptDisk]:
        return {one.disk.id: one for one in self._all(tables.disks, _DISKS)}

    def leftovers(self) -> dict[ResourceId, Leftover]:
        return {one.id: one for one in self._all(tables.leftovers, _LEFTOVERS)}

    def _all(self, table: Table, codec: Codec[T]) -> list[T]:
        key = next(iter(table.primary_key.columns))
        with self._read() as connection:
            rows = connection.execute(select(key, table.c.value).order_by(key)).all()
        return [codec.decode(value, key) for key, value in rows]
