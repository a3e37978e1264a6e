"""
What machines refer to, and we have learnt: their types, and the kinds of their resource policies.

A call for each type in the process's life and one for all policies of a project, never one for each machine.
"""

from collections.abc import Mapping, Set
from datetime import timedelta
from functools import partial
from typing import Any

from reaper import log
from reaper.clouds.gcp.asking import Asking
from reaper.clouds.gcp.instances import policy_key, policy_kind
from reaper.clouds.gcp.pages import messages
from reaper.clouds.gcp.permissions import READER, Permission
from reaper.clouds.gcp.types import TypeFacts, by_name, parse_type
from reaper.errors import CloudError
from reaper.ports import Clock

UNREAD_FOR, POLICIES_FOR = timedelta(minutes=10), timedelta(minutes=10)
"""How long a type that could not be read is not asked for again; how long the kinds of resource policies are good."""

NEEDS = (
    Permission("compute.machineTypes.get", "compute.machineTypes.get", READER, "GPUs and local SSDs that a type brings are not known"),
    Permission("compute.resourcePolicies.list", "compute.resourcePolicies.aggregatedList", READER, "machines with a resource policy are held"),
)

class Asked(dict[str, str]):
    """Kinds of resource policies that keep which of them were asked for."""

    def __init__(self, known: Mapping[str, str]) -> None:
        super().__init__(known)
        self.keys_asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_asked.add(key)
        return super().get(key, default)


_LOG = log.get(__name__)
_PAGE = 500


class Learned:
    """``types``: by name, those that are known. Thread-safe: what two threads learn at once is the same."""

    def __init__(self, asking: Asking, clock: Clock) -> None:
        self._asking, self._clock = asking, clock
        self.types: dict[str, TypeFacts] = {}
        self._unread: dict[str, float] = {}
        self._policies: dict[str, tuple[float, dict[str, str]]] = {}

    def policies(self, project: str) -> Mapping[str, str]:
        """Kinds of the project's resource policies, by `policy_key`. One that is not there is not known."""
        known = self._policies.get(project)
        return {} if known is None else known[1]

    def learn(self, project: str, zone: str, raw: Any) -> None:
        """What one instance names and we do not know yet. What cannot be read stays unknown."""
        type_name = raw.machine_type.rpartition("/")[2]
        self.named(project, zone, {type_name} - {""}, set(map(policy_key, raw.resource_policies)))

    def named(self, project: str, zone: str, types: Set[str], links: Set[str]) -> bool:
        """The same for all that instances of a zone name. Whether anything is known now that was not, or is another thing."""
        before, kinds = len(self.types), self.policies(project)
        now = self._clock.monotonic()
        for type_name in sorted(types - self.types.keys()):
            asked = self._unread.get(type_name)
            if asked is None or now - asked >= UNREAD_FOR.total_seconds():
                self._learn_type(project, zone, type_name)
        if links:
            self._learn_policies(project, links)
        return len(self.types) != before or self.policies(project) != kinds

    def _learn_type(self, project: str, zone: str, type_name: str) -> None:
        told = by_name(type_name)
        if told is None:
            doing = f"read machine type {type_name}"
            request = {"project": project, "zone": zone, "machine_type": type_name}
            try:
                client = self._asking.client("MachineTypes", project)
                answer = self._asking.call(doing, lambda: client.get(request=request, **self._asking.clients.read()))
                told = self._asking.call(doing, partial(parse_type, type(answer).pb(answer)))
            except CloudError as error:
                self._unread[type_name] = self._clock.monotonic()
                _LOG.warning("machine type not readable", type=type_name, zone=zone, because=str(error))
                return
        self._unread.pop(type_name, None)
        self.types[type_name] = told

    def _learn_policies(self, project: str, links: Set[str]) -> None:
        known, now = self._policies.get(project), self._clock.monotonic()
        if known is not None and now - known[0] < POLICIES_FOR.total_seconds() and links <= known[1].keys():
            return
        request, doing = {"project": project, "max_results": _PAGE}, f"list resource policies in gcp:{project}"

        def ask() -> dict[str, str]:
            client = self._asking.client("ResourcePolicies", project)
            pages = client.aggregated_list(request=request, **self._asking.clients.read()).pages
            raws = (raw for page in messages(pages, doing) for scoped in page.items.values() for raw in scoped.resource_policies)
            return {policy_key(raw.self_link): policy_kind(raw) for raw in raws}

        try:
            self._policies[project] = (now, self._asking.call(doing, ask))
        except CloudError as error:
            self._policies.pop(project, None)  # what they were is no evidence of what they are
            _LOG.warning("resource policies not readable", project=project, because=str(error))
