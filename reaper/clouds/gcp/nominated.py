"""
What is asked about a machine only once something is about to happen to it: its protection, whether its external address is a
reserved one, the keys of its disks, and whether a commitment pays for it either way. Never raises: what cannot be read is None.

Google knows no protection from being stopped. An owner who switched deletion protection on has said that the machine is not
ours to touch, in the only way there is; unless the operator says that this means nothing here. Ending it is barred either way.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from reaper import log
from reaper.clouds.gcp.asking import Asking
from reaper.clouds.gcp.machines import Machines
from reaper.clouds.gcp.pages import messages
from reaper.clouds.gcp.permissions import READER, Permission
from reaper.clouds.gcp.rest import KEYS, Rest
from reaper.errors import CloudError
from reaper.model.kinds.instance import DiskKey, Protections
from reaper.model.resource import ResourceId
from reaper.ports import Clock

NEEDS = (
    Permission("compute.addresses.list", "compute.addresses.aggregatedList", READER, "whether an external address stays through a stop is not known"),
    Permission("compute.commitments.list", "compute.regionCommitments.aggregatedList", READER, "that a stop saves nothing is not said"),
    Permission(
        "cloudkms.cryptoKeys.get", "cloudkms.projects.locations.keyRings.cryptoKeys.get", READER,
        "whether a machine could start again with its keys is not known; needed where the keys are, which may be another project",
    ),
)  # fmt: skip

KEPT_S = 600.0
"""How long the answers that are about more than one machine are good."""

_LOG = log.get(__name__)
_PAGE = 500
_KEY_STATES = {"ENABLED": "Enabled", "DISABLED": "Disabled", "DESTROYED": "Destroyed", "DESTROY_SCHEDULED": "to be destroyed"}


class Nominated:
    """Thread-safe. ``types``: Google's names of the accelerators that a machine type brings, by its name."""

    def __init__(self, asking: Asking, machines: Machines, rest: Rest, clock: Clock, types: Callable[[str], tuple[tuple[str, int], ...]], *, commitments: bool) -> None:
        self._asking, self._machines, self._rest, self._clock, self._types = asking, machines, rest, clock, types
        self._commitments = commitments
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[float, Any]] = {}

    def read(self, resource: ResourceId) -> Protections:
        """One call a machine, and what is kept for ten minutes."""
        try:
            raw = self._machines.read(resource)
        except CloudError as error:
            return Protections(stop_protected=None, because=f"read deletion protection of {resource}: {error}")
        if any(config.nat_i_p for nic in raw.network_interfaces for config in nic.access_configs):
            self.learn_addresses(resource.account)
        on = self._machines.protected(raw)
        return Protections(
            stop_protected=on, because="deletionProtection is set" if on else None, termination_protected=bool(raw.deletion_protection),
            keys=self._keys(raw, resource.account), covered=self._covered(raw, resource),
        )  # fmt: skip

    # --- addresses ----------------------------------------------------------------------------------------------------

    def reserved(self, project: str) -> frozenset[str] | None:
        """External addresses that somebody reserved, as last read; None: not known. Asks nobody."""
        kept = self._kept.get(("addresses", project))
        return None if kept is None or isinstance(kept[1], CloudError) else kept[1]

    def learn_addresses(self, project: str) -> None:
        doing = f"list addresses in gcp:{project}"

        def ask() -> frozenset[str]:
            client = self._asking.client("Addresses", project)
            pages = client.aggregated_list(request={"project": project, "max_results": _PAGE}, **self._asking.clients.read()).pages
            raws = (raw for page in messages(pages, doing) for scoped in page.items.values() for raw in scoped.addresses)
            return frozenset(raw.address for raw in raws if raw.address)

        self._remembered(("addresses", project), doing, ask)

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _keys(self, raw: Any, project: str) -> tuple[DiskKey, ...]:
        """Of disks under a key of the customer's. One that Google never held is none that could be looked at."""
        names = sorted({disk.disk_encryption_key.kms_key_name.partition("/cryptoKeyVersions/")[0] for disk in raw.disks} - {""})
        return tuple(self._key(name, project) for name in names)

    def _key(self, name: str, project: str) -> DiskKey:
        told = self._remembered(("key", name), f"read key {name}", lambda: self._rest.get(KEYS, f"v1/{name}", f"read key {name}", project=project))
        if isinstance(told, CloudError):
            return DiskKey(name, because=str(told), ours=False)
        word = str(told.get("primary", {}).get("state") or "")
        # without a primary version nothing can be opened with it
        return DiskKey(name, _KEY_STATES.get(word, word.lower() or "without a version"), ours=False)

    # --- commitments --------------------------------------------------------------------------------------------------

    def _covered(self, raw: Any, resource: ResourceId) -> str | None:
        """For telling only: of two machines and one commitment, whichever runs is covered."""
        if not self._commitments:
            return None
        project, region, doing = resource.account, resource.place.rpartition("-")[0], f"list commitments in gcp:{resource.account}"

        def ask() -> list[tuple[str, str, Mapping[str, int]]]:
            client = self._asking.client("RegionCommitments", project)
            pages = client.aggregated_list(request={"project": project, "max_results": _PAGE}, **self._asking.clients.read()).pages
            raws = (one for page in messages(pages, doing) for scoped in page.items.values() for one in scoped.commitments)
            return [
                (one.name, one.region.rpartition("/")[2], {r.accelerator_type.rpartition("/")[2]: int(r.amount) for r in one.resources if r.accelerator_type})
                for one in raws
                if one.status == "ACTIVE"
            ]

        found = self._remembered(("commitments", project), doing, ask)
        if isinstance(found, CloudError):
            return None
        has = {a.accelerator_type.rpartition("/")[2] for a in raw.guest_accelerators} or {name for name, _ in self._types(raw.machine_type.rpartition("/")[2])}
        for name, where, amounts in found:
            for accelerator in sorted(has & amounts.keys()) if where == region else ():
                return f"commitment {name} pays for {amounts[accelerator]} {accelerator} in {region} and no other machine uses them"
        return None

    def _remembered(self, key: tuple[str, str], doing: str, ask: Callable[[], Any]) -> Any:
        """The answer, or the CloudError that came instead, which is as good for as long."""
        now = self._clock.monotonic()
        with self._lock:
            kept = self._kept.get(key)
        if kept is None or now - kept[0] >= KEPT_S:
            try:
                answer = self._asking.call(doing, ask)
            except CloudError as error:
                _LOG.warning("not readable", what=doing, because=str(error))
                answer = error
            kept = (now, answer)
            with self._lock:
                self._kept[key] = kept
        return kept[1]
