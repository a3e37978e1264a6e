"""
Which machines are of one job: those that share a value of any of the operator's [gang] rules, directly or by way of others;
and those whose GPU processes are connected, unless the rules already say of both which job they are of.
"""

from collections.abc import Iterable

from reaper.model.kinds.instance import Instance
from reaper.model.policy import gang_keys
from reaper.model.resource import ResourceId


class Gangs:
    """The gangs of one listing. A gang is called by the first, in order of text, of its members' keys."""

    def __init__(self, instances: Iterable[Instance], same: tuple[str, ...], linked: Iterable[tuple[ResourceId, ResourceId]] = ()) -> None:
        self._parent: dict[str, str] = {}
        keys = {instance.id: gang_keys(instance, same) for instance in instances} if same else {}
        ruled = {id for id, several in keys.items() if several}
        for one, other in linked:
            if one not in ruled or other not in ruled:
                mine = keys[one] = keys.get(one) or frozenset((f"connected={one}",))
                theirs = keys[other] = keys.get(other) or frozenset((f"connected={other}",))
                self._join(min(mine), min(theirs))
        for several in keys.values():
            for key in several:
                self._join(min(several), key)
        self._of = {id: self._root(min(several)) for id, several in keys.items() if several}
        self._members: dict[str, list[ResourceId]] = {}
        for id, key in self._of.items():
            self._members.setdefault(key, []).append(id)

    def of(self, resource: ResourceId) -> str | None:
        """None: a machine of no job, or one that was not listed."""
        return self._of.get(resource)

    def members(self, gang: str) -> tuple[ResourceId, ...]:
        return tuple(self._members.get(gang, ()))

    def _root(self, key: str) -> str:
        while key in self._parent:
            key = self._parent[key]
        return key

    def _join(self, one: str, other: str) -> None:
        low, high = sorted((self._root(one), self._root(other)))
        if low != high:
            self._parent[high] = low
