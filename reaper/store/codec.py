"""
Values to JSON columns and back, so that what was written is what is read or an error.

Absent means None: members that are null are left out, which halves a report window. A value is read back before it
is written, because a row that cannot be read hides its neighbours for ever.
"""

import re
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec

from reaper.errors import StoreError

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Inside a JSON string a quote is always escaped, so `,"name":null` can only be a member. (An optional field whose
# default is not None would come back as its default: tests/store/test_codec.py refuses such a field.)
_NULL_MEMBER = re.compile(rb',"[a-z0-9_]+":null(?=[,}])')
_NULL_FIRST = re.compile(rb'\{"[a-z0-9_]+":null,?')


def micros(moment: datetime) -> int:
    """Whole microseconds since 1970 in UTC. Raises StoreError for a moment without a zone: it could be any of 26 hours."""
    if moment.utcoffset() is None:
        raise StoreError(f"{moment.isoformat()} has no time zone and was not stored; pass an aware datetime")
    return (moment - _EPOCH) // _MICROSECOND


def moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


class Codec(Generic[T]):
    """One table's value. ``table`` is for messages."""

    def __init__(self, table: str, type_: type[T]) -> None:
        self._table = table
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(type_)

    def encode(self, value: T) -> str:
        """Moments in UTC, nulls left out. Raises StoreError for what could not be read again (NaN, a naive moment, a lone surrogate)."""
        try:
            text = _NULL_FIRST.sub(b"{", _NULL_MEMBER.sub(b"", self._encoder.encode(in_utc(value))))
            self._decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError, OverflowError, TypeError) as error:
            raise StoreError(f"{self._table}: a value that could not be read again was not stored: {error}") from error
        return text.decode()

    def decode(self, text: str, *key: object) -> T:
        """Raises StoreError that names table and key; never a default."""
        try:
            return self._decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError) as error:
            row = ", ".join(str(part) for part in key)
            raise StoreError(
                f"the row {row} of {self._table} cannot be read: {error}. Restore a backup, or report this with the row;"
                " nothing is assumed in its place"
            ) from error


def in_utc(value: Any) -> Any:
    """The same value with every moment in UTC; itself where nothing changes. Raises StoreError for a naive moment."""
    match value:
        case datetime():
            if value.tzinfo is UTC:
                return value
            micros(value)  # refuses a naive one
            return value.astimezone(UTC)
        case tuple():
            moved = tuple(in_utc(item) for item in value)
            return value if all(a is b for a, b in zip(moved, value, strict=True)) else moved
        case _ if is_dataclass(value) and not isinstance(value, type):
            old = {name: getattr(value, name) for name in _dated(type(value))}
            changed = {name: new for name, item in old.items() if (new := in_utc(item)) is not item}
            return replace(value, **changed) if changed else value
        case _:
            return value


@cache
def _dated(type_: type) -> tuple[str, ...]:
    """The fields in which a moment can be, so that windows of GPUs and the like are not walked for nothing."""
    hints = get_type_hints(type_)
    return tuple(field.name for field in fields(type_) if _holds_moment(hints[field.name]))


def _holds_moment(hint: Any) -> bool:
    if hint is datetime:
        return True
    if isinstance(hint, type) and is_dataclass(hint):
        return bool(_dated(hint))
    return any(_holds_moment(part) for part in get_args(hint))
