"""
The fields of a message: what each may be, read strictly and named by its path when it is wrong. Nothing here knows a report.

Stdlib only, Python 3.9 and later, as all of the wire.
"""

from __future__ import annotations

import json
import math
import re
import socket
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Callable, Dict, List, Tuple

# Bounds of one report. A host with 16 GPUs and as many jobs needs under 8 KB.
MAX_BODY_BYTES = 64 * 1024
MAX_ITEMS = 64
MAX_TEXT = 256
# Of Google's projects, those of a domain have one more colon in them ("example.com:project"), and no other account has.
_RESOURCE_ID = re.compile(
    r"^(gcp:[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+|[a-z][a-z0-9-]{0,15})(:[A-Za-z0-9._-]{1,128}){2}:instance:[A-Za-z0-9._-]{1,128}$"
)

Reader = Callable[[Any, str], Any]


class Bad(Exception):
    def __init__(self, path: str, problem: str, remedy: str = "") -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(path, problem)


def brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 32 else text[:32] + "..."


def number(low: float, high: float) -> Reader:
    def read(value: Any, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Bad(path, "must be a number, not %s" % _kind(value))
        if isinstance(value, float) and not math.isfinite(value):  # a huge whole number has no float to ask
            raise Bad(path, "must be finite", "leave out a figure that is not known")
        if not low <= value <= high:
            raise Bad(path, "is %s, outside %g..%g" % (brief(value), low, high), "leave out a figure that is out of range")
        return float(value)

    return read


def whole(low: int, high: int) -> Reader:
    def read(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Bad(path, "must be a whole number, not %s" % _kind(value))
        if not low <= value <= high:
            raise Bad(path, "is %s, outside %d..%d" % (brief(value), low, high), "leave out a figure that is out of range")
        return value

    return read


def words(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise Bad(path, "must be text, not %s" % _kind(value))
    if not value or len(value) > MAX_TEXT:
        raise Bad(path, "must have 1 to %d characters, has %d" % (MAX_TEXT, len(value)))
    if not value.isprintable():
        raise Bad(path, "holds a character that cannot be printed")
    return value


def is_resource_id(text: str) -> bool:
    """Whether this is the id of an instance, such as aws:123456789012:eu-west-1:instance:i-0abc."""
    return len(text) <= MAX_TEXT and _RESOURCE_ID.fullmatch(text) is not None


def resource(value: Any, path: str) -> str:
    text = words(value, path)
    if not is_resource_id(text):
        raise Bad(path, "is not a resource id", "write it as aws:123456789012:eu-west-1:instance:i-0abc")
    return text


def is_address(text: str) -> bool:
    """Whether this is an IPv4 or IPv6 address as the sockets write it. (The module made for that costs a megabyte.)"""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return True
    return False


def address(value: Any, path: str) -> str:
    text = words(value, path)
    if not is_address(text):
        raise Bad(path, "is not an address", "write it as 10.0.0.5 or fd00::5")
    return text


def flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise Bad(path, "must be true or false, not %s" % _kind(value))
    return value


def list_of(read: Reader) -> Reader:
    def read_list(value: Any, path: str) -> Tuple[Any, ...]:
        if not isinstance(value, list):
            raise Bad(path, "must be a list, not %s" % _kind(value))
        if len(value) > MAX_ITEMS:
            raise Bad(path, "has %d items, more than %d" % (len(value), MAX_ITEMS))
        return tuple(read(item, "%s[%d]" % (path, i)) for i, item in enumerate(value))

    return read_list


def parts(make: Callable[..., Any], readers: Mapping[str, Reader], required: Tuple[str, ...]) -> Reader:
    # What may be absent and has no default of its own.
    parts = fields(make)  # type: ignore[arg-type]  # each is one of our dataclasses
    empty = {f.name: None for f in parts if f.name in readers and f.name not in required and f.default is MISSING and f.default_factory is MISSING}

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise Bad(path or "body", "must be an object, not %s" % _kind(value))
        prefix = path + "." if path else ""
        for name in required:
            if value.get(name) is None:
                raise Bad(prefix + name, "is missing")
        # Unknown names are ignored: a newer agent may say more than we understand.
        known = {n: r(value[n], prefix + n) for n, r in readers.items() if value.get(n) is not None}
        return make(**{**empty, **known})

    return read


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "true or false", str: "text", list: "a list", dict: "an object"}.get(type(value), "a number")


def _no_duplicates(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise Bad(name[:64], "appears twice", "send each field once")
        found[name] = value
    return found


def _not_a_number(text: str) -> Any:
    raise Bad("body", "holds %s" % text, "leave out a figure that is not known")


def load(body: bytes) -> Any:
    if len(body) > MAX_BODY_BYTES:
        raise Bad("body", "has %d bytes, more than %d" % (len(body), MAX_BODY_BYTES), "send one report per request")
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_not_a_number, object_pairs_hook=_no_duplicates)
    except UnicodeDecodeError as error:
        raise Bad("body", "is not UTF-8 (byte %d)" % error.start) from error
    except RecursionError as error:
        raise Bad("body", "is nested too deeply") from error
    except ValueError as error:
        raise Bad("body", "is not JSON (%s)" % error, "was it cut off on the way?") from error
