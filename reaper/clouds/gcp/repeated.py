"""
Machines of which Google says the same as in the listing before are not read anew: a fleet's machines rarely change, and
telling that two answers are the same costs a tenth of understanding one.

A machine with a resource policy is always read anew: what its policy is may have changed without a word in the machine itself.
"""

from collections.abc import Callable, Hashable, Iterable
from hashlib import blake2b
from typing import Any

from reaper.model.kinds.instance import Instance


class Repeated:
    """
    One project's, for one listing at a time. ``edition``: whatever else than the answer a machine is read with; where that is
    another than it was, nothing of the last listing holds.
    """

    def __init__(self) -> None:
        self._edition: Hashable = None
        self._last: dict[tuple[str, int], tuple[bytes, Instance]] = {}
        self._fresh: dict[tuple[str, int], tuple[bytes, Instance]] = {}

    def begin(self, edition: Hashable) -> None:
        if edition != self._edition:
            self._edition, self._last = edition, {}
        self._fresh = {}

    def end(self, edition: Hashable) -> None:
        """After a whole listing. What was learned in its course makes it worthless for the next."""
        self._last, self._fresh = (self._fresh if edition == self._edition else {}), {}

    def read(self, zone: str, raws: Iterable[Any], parse: Callable[[Any], Instance]) -> list[Instance]:
        """One zone's Instance messages of a page."""
        last, fresh, found = self._last, self._fresh, []
        for raw in raws:
            if raw.resource_policies:
                found.append(parse(raw))
                continue
            key, digest = (zone, raw.id), blake2b(raw.SerializeToString(deterministic=True), digest_size=16).digest()
            before = last.get(key)
            instance = before[1] if before is not None and before[0] == digest else parse(raw)
            fresh[key] = (digest, instance)
            found.append(instance)
        return found
