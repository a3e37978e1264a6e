"""Report windows, who spoke them, and the tokens with which they may."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from types import EllipsisType

from sqlalchemy import Connection, Engine, bindparam, delete, func, select, update

from reaper.errors import HeardElsewhere, StoreError
from reaper.model.audit import AuditEntry
from reaper.model.resource import ResourceId
from reaper.model.signal import Observation, Voice
from reaper.ports import Token
from reaper.store import tables
from reaper.store.codec import Codec, micros
from reaper.store.dialect import Dialect, Prepared, insert_new, upsert
from reaper.store.transactions import Transactions

_WINDOWS = Codec("observations", Observation)
_VOICES = Codec("voices", Voice)
_TOKENS = Codec("tokens", Token)

_FORGOTTEN_AT_ONCE = 5000
"""Rows: a deletion of some 20 ms, after which writers that wait get their turn."""


class Reports(Transactions):
    def __init__(self, engine: Engine, dialect: Dialect, *, one_connection: bool = False) -> None:
        super().__init__(engine, dialect, one_connection=one_connection)
        kept = tables.observations
        first = (
            select(kept.c.boot_received_at)
            .where(kept.c.resource == bindparam("of_resource"), kept.c.boot_id == bindparam("of_boot"))
            .limit(1)
            .scalar_subquery()
        )
        window = insert_new(engine, kept).values(
            resource=bindparam("of_resource"),
            boot_id=bindparam("of_boot"),
            boot_received_at=func.coalesce(first, bindparam("received_at")),
        )
        self._new_window = Prepared(engine, window, ("seq", "ended_at", "verified", "value"))
        self._newest_voice = Prepared(engine, upsert(engine, tables.voices), ("resource", "value"))

    def add_observation(self, observation: Observation, voice: Voice, after: Voice | None | EllipsisType = ...) -> bool:
        """As in the port."""
        resource, row = str(observation.resource), _rows(observation, voice)
        with self._write(resource) as connection:
            if after is not ... and _voice(connection, resource) != after:
                raise HeardElsewhere(f"{resource} was heard by another process meanwhile; the report was not kept and is safe to send again")
            return self._add_window(connection, *row)

    def add_observations(self, spoken: list[tuple[Observation, Voice]]) -> tuple[bool, ...]:
        """
        The same for several in one transaction (one wait for the disk), in their order: False where one was a duplicate.

        An error stores none of them.
        """
        rows = [_rows(observation, voice) for observation, voice in spoken]
        if not rows:
            return ()
        with self._write(*(str(observation.resource) for observation, _ in spoken)) as connection:
            return tuple(self._add_window(connection, *row) for row in rows)

    def before_and_after(self, resource: ResourceId, boot_id: str, seq: int) -> tuple[Observation | None, Observation | None]:
        """As in the port."""
        kept = tables.observations.c
        query = select(kept.seq, kept.verified, kept.value).where(kept.resource == str(resource), kept.boot_id == boot_id).limit(1)
        with self._read() as connection:
            rows = (
                connection.execute(query.where(kept.seq <= seq).order_by(kept.seq.desc())).first(),
                connection.execute(query.where(kept.seq > seq).order_by(kept.seq)).first(),
            )
        before, after = (None if row is None else _window(row.verified, row.value, resource, boot_id, row.seq) for row in rows)
        return before, after

    def observations(self, since: datetime, resource: ResourceId | None = None) -> Iterator[Observation]:
        """
        As in the port. One short transaction for each resource, so a slow reader keeps nobody waiting; a boot's first
        receipt is that of its first window that was kept.
        """
        start = micros(since)
        if resource is not None:
            names = [str(resource)]
        else:
            with self._read() as connection:  # who has a window has a voice
                names = list(connection.scalars(select(tables.voices.c.resource).order_by(tables.voices.c.resource)))
        return self._streamed(names, start)

    def _streamed(self, names: list[str], start: int) -> Iterator[Observation]:
        kept = tables.observations.c
        query = (
            select(kept.boot_id, kept.seq, kept.verified, kept.value)
            .where(kept.resource == bindparam("name"), kept.ended_at >= start)
            .order_by(kept.boot_received_at, kept.boot_id, kept.seq)
        )
        for name in names:
            with self._read() as connection:
                rows = connection.execute(query, {"name": name}).all()
            for boot_id, seq, verified, value in rows:
                yield _window(verified, value, name, boot_id, seq)

    def windows_after(self, points: Sequence[tuple[ResourceId, str, int]], limit: int) -> dict[ResourceId, tuple[Observation, ...]]:
        """As in the port. One look at a key's end each, in one transaction."""
        kept = tables.observations.c
        query = (
            select(kept.seq, kept.verified, kept.value)
            .where(kept.resource == bindparam("name"), kept.boot_id == bindparam("boot"), kept.seq > bindparam("last"))
            .order_by(kept.seq)
            .limit(limit)
        )
        found: dict[ResourceId, tuple[Observation, ...]] = {}
        if not points:
            return found
        with self._read() as connection:
            for resource, boot, last in points:
                rows = connection.execute(query, {"name": str(resource), "boot": boot, "last": last}).all()
                if rows:
                    found[resource] = tuple(_window(verified, value, resource, boot, seq) for seq, verified, value in rows)
        return found

    def distrust(self, resource: ResourceId, since: datetime) -> None:
        kept = tables.observations
        with self._write(str(resource)) as connection:
            connection.execute(
                update(kept)
                .where(kept.c.resource == str(resource), kept.c.ended_at > micros(since))
                .values(verified=False)
            )

    def forget_observations(self, before: datetime) -> int:
        """As in the port, in several transactions when there is much to forget."""
        kept = tables.observations
        end, dropped = micros(before), 0
        while True:
            with self._write() as connection:
                later = connection.scalar(
                    select(kept.c.ended_at).where(kept.c.ended_at < end).order_by(kept.c.ended_at)
                    .offset(_FORGOTTEN_AT_ONCE).limit(1)
                )  # fmt: skip
                upto = end if later is None else later + 1
                dropped += connection.execute(delete(kept).where(kept.c.ended_at < upto)).rowcount
            if later is None:
                return dropped

    def voices(self) -> dict[ResourceId, Voice]:
        with self._read() as connection:
            rows = connection.execute(select(tables.voices)).all()
        voices = [_VOICES.decode(value, resource) for resource, value in rows]
        return {voice.resource: voice for voice in voices}

    def voice(self, resource: ResourceId) -> Voice | None:
        with self._read() as connection:
            return _voice(connection, str(resource))

    def add_token(self, token: Token, entry: AuditEntry) -> None:
        """Raises StoreError when the id is taken."""
        row = {"id": token.id, "value": _TOKENS.encode(token)}
        with self._write() as connection:
            self._add(connection, tables.tokens, row)
            self._record(connection, entry)

    def token(self, id: str) -> Token | None:
        with self._read() as connection:
            return _token(connection, id)

    def tokens(self) -> tuple[Token, ...]:
        """Oldest first, revoked ones included."""
        with self._read() as connection:
            rows = connection.execute(select(tables.tokens.c.id, tables.tokens.c.value)).all()
        return tuple(sorted((_TOKENS.decode(value, id) for id, value in rows), key=lambda t: (t.created_at, t.id)))

    def revoke_token(self, id: str, at: datetime, entry: AuditEntry) -> bool:
        """False, and nothing is written, when there is none or it was revoked before."""
        with self._write() as connection:
            token = _token(connection, id)
            if token is None or token.revoked_at is not None:
                return False
            value = _TOKENS.encode(replace(token, revoked_at=at))
            self._put(connection, tables.tokens, [{"id": id, "value": value}])
            self._record(connection, entry)
        return True

    def _add_window(self, connection: Connection, window: dict[str, object], voice: dict[str, object]) -> bool:
        if self._new_window.run(connection, window) == 0:
            return False
        self._newest_voice.run(connection, voice)
        return True


def _rows(observation: Observation, voice: Voice) -> tuple[dict[str, object], dict[str, object]]:
    resource = str(observation.resource)
    if voice.resource != observation.resource:
        raise StoreError(f"the voice of {voice.resource} cannot speak for {resource}; nothing was stored")
    window = {
        "of_resource": resource,
        "of_boot": observation.boot_id,
        "seq": observation.seq,
        "received_at": micros(observation.received_at),
        "ended_at": micros(observation.ended_at),
        "verified": observation.verified,
        "value": _WINDOWS.encode(observation),
    }
    return window, {"resource": resource, "value": _VOICES.encode(voice)}


def _window(verified: bool, value: str, *key: object) -> Observation:
    window = _WINDOWS.decode(value, *key)
    return window if window.verified is verified else replace(window, verified=verified)


def _voice(connection: Connection, resource: str) -> Voice | None:
    value = connection.scalar(select(tables.voices.c.value).where(tables.voices.c.resource == resource))
    return None if value is None else _VOICES.decode(value, resource)


def _token(connection: Connection, id: str) -> Token | None:
    value = connection.scalar(select(tables.tokens.c.value).where(tables.tokens.c.id == id))
    return None if value is None else _TOKENS.decode(value, id)
