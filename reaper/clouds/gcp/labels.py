"""
Our own state as labels: what is a tag on AWS, within what Google allows a label to be.

Lower case, digits, "-" and "_", at most 63: "idle-reaper:stopped-at" = "2026-12-24T10:00:00+00:00" is written as
"idle-reaper_stopped-at" = "1798106400", and read back under the tag's own key. A value that fits in no way is written as
its hash: it can still be compared, and says to whoever reads it that there is more in the audit. Labels never steer a
decision, so one that could not be written changes nothing. Pure.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime

TAG_PREFIX, LABEL_PREFIX = "idle-reaper:", "idle-reaper_"
LONGEST = 63

_KEY = re.compile(r"[a-z][a-z0-9_-]*")
_VALUE = re.compile(r"[a-z0-9_-]*")


def label_key(tag: str) -> str:
    """Of one of our own tags. Raises ValueError for a key that is not ours, or that no label can have."""
    key = LABEL_PREFIX + tag.removeprefix(TAG_PREFIX)
    if not tag.startswith(TAG_PREFIX) or not _KEY.fullmatch(key) or len(key) > LONGEST:
        raise ValueError(f"{tag!r} is no tag of our own that could be a label")
    return key


def label_value(value: str) -> str:
    """As it is where that is allowed; a moment as epoch seconds; anything else in small letters, or as its hash."""
    if _fits(value):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is not None and moment.tzinfo is not None:
        return str(int(moment.timestamp()))
    return f"sha-{hashlib.sha256(value.encode()).hexdigest()[:16]}"


def with_ours(labels: Mapping[str, str], tags: Mapping[str, str | None]) -> dict[str, str]:
    """All labels of a machine after ours were put on it, or (None) taken off; everybody else's stay. Raises ValueError."""
    after = dict(labels)
    for tag, value in tags.items():
        if value is None:
            after.pop(label_key(tag), None)
        else:
            after[label_key(tag)] = label_value(value)
    return after


def as_tags(labels: Mapping[str, str]) -> dict[str, str]:
    """A machine's labels under the keys that everybody else here knows: only our own have another."""
    return {TAG_PREFIX + key[len(LABEL_PREFIX) :] if key.startswith(LABEL_PREFIX) else key: value for key, value in labels.items()}


def _fits(value: str) -> bool:
    return len(value) <= LONGEST and _VALUE.fullmatch(value) is not None
