"""A resource is one thing a cloud bills for; its id is cloud, account, place, kind and native id, in that order."""

import re
from dataclasses import dataclass

_PART = re.compile(r"^[A-Za-z0-9._-]{1,128}$")
_DOMAIN = re.compile(r"^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+$")


@dataclass(frozen=True, slots=True, order=True)
class ResourceId:
    """
    Written ``aws:123456789012:eu-west-1:instance:i-0abc`` or ``gcp:project:zone:instance:NUMERIC-ID``.

    ``account`` and ``native`` are text even where a cloud uses digits: a leading zero counts. The projects of a Google
    domain have a colon in their id and keep it, ``gcp:example.com:project:zone:instance:NUMERIC-ID``: no other id has six parts.
    """

    cloud: str
    account: str
    place: str
    kind: str
    native: str

    def __hash__(self) -> int:
        return hash(self.native)  # as good as unique, and asked a dozen times a machine and cycle

    def __str__(self) -> str:
        return f"{self.cloud}:{self.account}:{self.place}:{self.kind}:{self.native}"

    @classmethod
    def parse(cls, text: str) -> "ResourceId":
        """Raises ValueError that says how an id is written."""
        parts = text.split(":")
        domain = ""
        if len(parts) == 6 and parts[0] == "gcp" and _DOMAIN.fullmatch(parts[1]):
            domain = f"{parts.pop(1)}:"
        if len(parts) != 5 or not all(_PART.match(part) for part in parts):
            raise ValueError(f"{text!r} is not a resource id; write it as aws:123456789012:eu-west-1:instance:i-0abc")
        cloud, account, *rest = parts
        return cls(cloud, domain + account, *rest)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a listing looks: one cloud, one account, one region or zone. ``account`` may be "?" before the first answer."""

    cloud: str
    account: str
    name: str

    def __str__(self) -> str:
        return f"{self.cloud}:{self.account}:{self.name}"
