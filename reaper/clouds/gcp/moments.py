"""Moments as Google writes them: RFC 3339 with any offset. Pure."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=65536)  # most of them were in the last listing, too
def moment(text: str) -> datetime | None:
    """What cannot be read is not known, and an empty one is no epoch."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
