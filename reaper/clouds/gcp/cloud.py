"""Compute Engine instances of any number of projects, with the process's own credentials or a service account impersonated."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from reaper import log
from reaper.clouds.gcp import below, copies, learned, machines, nominated, operations, prices, shelves
from reaper.clouds.gcp.answers import SWITCHED_OFF
from reaper.clouds.gcp.asking import Asking
from reaper.clouds.gcp.clients import Bounds, Clients
from reaper.clouds.gcp.instances import UNKNOWN_TYPE, parse_instance
from reaper.clouds.gcp.labels import with_ours
from reaper.clouds.gcp.pace import Pace
from reaper.clouds.gcp.pages import Zones, messages, zones_of
from reaper.clouds.gcp.permissions import READER, Permission
from reaper.clouds.gcp.repeated import Repeated
from reaper.clouds.gcp.rest import Rest
from reaper.clouds.gcp.rounds import Rounds
from reaper.clouds.gcp.shelves import NOWHERE
from reaper.clouds.gcp.types import TypeFacts
from reaper.errors import CloudError, Denied, Refused, WrongState
from reaper.model import policy
from reaper.model.kinds.instance import Instance, InstanceState, Protections
from reaper.model.kinds.snapshot import Snapshot
from reaper.model.resource import Place, ResourceId
from reaper.ports import Clock, Listed, Shelf

NEEDS = (
    Permission("compute.instances.list", "compute.instances.aggregatedList", READER, "no machine is known"),
    *shelves.NEEDS,
    *machines.NEEDS,
    *learned.NEEDS,
    *operations.NEEDS,
    *nominated.NEEDS,
    *copies.NEEDS,
    *prices.NEEDS,
    *below.NEEDS,
)
"""What the roles in deploy/iam/gcp are made of."""

_LOG = log.get(__name__)


class GcpCloud:
    """
    Implements ports.Cloud and ports.Disks. ``list_within``: seconds after which a project that still has not answered is given up for
    this listing. ``page_size``: machines a page, 1 to 500. ``credentials``: what makes them, for the service account
    to impersonate or None. The library is loaded at the first call.
    """

    name = "gcp"

    def __init__(
        self,
        settings: policy.GcpCloud,
        *,
        clock: Clock,
        credentials: Callable[[str | None], Any] | None = None,
        bounds: Bounds | None = None,
        list_within: float = 45,
        page_size: int = 500,
        pace: Pace | None = None,
    ) -> None:
        self._settings = settings
        self._given = {project: given for project, given in settings.given.items() if given}
        self._list_within = list_within
        self._page_size = page_size
        self._preserve = settings.local_ssd == "preserve"
        bounds = Bounds() if bounds is None else bounds
        self._clients = Clients(
            endpoint=settings.endpoint, service_account=settings.service_account, clock=clock, bounds=bounds, credentials=credentials, pace=pace
        )  # fmt: skip
        self._asking = Asking(self._clients)
        self.rest = Rest(self._asking)
        self.below = below.Below(settings.projects, settings.below, self.rest, clock)
        self._learned = learned.Learned(self._asking, clock)
        self._prices = prices.Prices(self.rest, clock, None if settings.price_file is None else Path(settings.price_file), ask=settings.price_list)
        self._operations = operations.Operations(self._asking, clock, bounds.poll_s)
        self._machines = machines.Machines(settings, self._asking, self._operations, clock, bounds.stop_s, bounds.start_s, self.below)
        self._nominated = nominated.Nominated(self._asking, self._machines, self.rest, clock, self._accelerators, commitments=settings.price_list)
        self._copies = copies.Copies(self._asking, self._machines, self._operations, bounds.stop_s)
        self._zones: dict[str, set[str]] = {}
        self._said: set[str] = set()
        self._repeated: dict[str, Repeated] = {}
        self._listing = Rounds("gcp-list", self._list_project)
        self._shelves = shelves.Shelves(
            settings, self._asking, self.below, self._prices, clock, within_s=list_within, page_size=page_size, known=lambda project: self._zones.get(project, ())
        )  # fmt: skip

    # --- reads --------------------------------------------------------------------------------------------------------

    def list(self) -> tuple[Listed, ...]:
        """
        Every zone of every project, the projects in parallel. A folder that could not be searched is a place that failed.
        Raises CloudError where the library is not installed.
        """
        self._asking.call("load Google's client", self._clients.load)  # before the time is taken: it can be many seconds
        projects, unread = self.below.search(self._list_within / 3)
        futures = self._listing.begin(projects)
        wait([future for future in futures.values() if future is not None], timeout=self._list_within)
        found = [listed for project, future in futures.items() for listed in self._outcome(project, future)]
        found += [Listed(Place(self.name, folder, NOWHERE), failed=f"gcp:{folder}: {why}") for folder, why in unread.items()]
        if projects:
            self._prices.learn(projects[0])
        return tuple(found)

    def get(self, resource: ResourceId) -> Instance:
        raw = self._machines.read(resource)
        self._learned.learn(resource.account, resource.place, raw)
        found = self._parse(raw, resource.account, resource.place)
        failure = self._operations.how_it_ended(resource)
        if failure is None:
            return found
        fell_back = operations.hindrance(failure) if found.state in (InstanceState.STOPPED, InstanceState.SUSPENDED) else None
        return replace(found, state_reason=str(failure), fell_back=fell_back)

    def protections(self, resource: ResourceId) -> Protections:
        return self._nominated.read(resource)

    def snapshots(self, resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
        return self._copies.found(resource, key)

    def shelves(self) -> tuple[Shelf, ...]:
        """Every zone and region of every project with its disks, and what else lies about there; see `shelves`."""
        return self._shelves.read()

    def skew(self, now: datetime) -> timedelta | None:
        return self._clients.time.skew(now)

    # --- verbs --------------------------------------------------------------------------------------------------------

    def stop(self, resource: ResourceId) -> None:
        self._machines.stop(resource)

    def hibernate(self, resource: ResourceId) -> None:
        """Google's word for it is suspend: memory is kept, for 60 days at most, and the machine goes."""
        self._machines.suspend(resource)

    def start(self, resource: ResourceId) -> None:
        """Of a suspended one it is a resume."""
        self._machines.start(resource)

    def terminate(self, resource: ResourceId) -> None:
        self._machines.delete(resource)

    def snapshot(self, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        return self._copies.begin(resource, volume, tags)

    def tag(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        """
        Put our own tags on a machine as labels, or take them off (None). The fingerprint that goes with them has Google refuse
        them where somebody wrote labels meanwhile: then it is read and tried once more. At most two calls. Raises Refused for a
        key that is not ours.
        """
        try:
            with_ours({}, tags)
        except ValueError as error:
            raise Refused(f"label {resource}: {error}") from error
        try:
            self._machines.label(resource, tags)
        except WrongState as error:
            _LOG.info("labels changed meanwhile; read and tried once more", resource=str(resource), because=str(error))
            self._machines.label(resource, tags)

    def _parse(self, raw: Any, project: str, zone: str) -> Instance:
        return parse_instance(
            raw, project=project, zone=zone, types=self._learned.types, policies=self._learned.policies(project), preserve=self._preserve,
            price=self._prices.of, reserved=self._nominated.reserved(project), given=self._given.get(project),
        )  # fmt: skip

    def _accelerators(self, type: str) -> tuple[tuple[str, int], ...]:
        return self._learned.types.get(type, TypeFacts()).accelerators

    # --- listing ------------------------------------------------------------------------------------------------------

    def _outcome(self, project: str, future: "Future[tuple[Listed, ...]] | None") -> tuple[Listed, ...]:
        if future is None or not future.done():
            return self._all_failed(project, f"no complete answer within {self._list_within:g} s; check the network, or leave the project out")
        error = future.exception()
        if error is None:
            return future.result()
        if not isinstance(error, CloudError):
            _LOG.error("listing not understood", project=project, error=f"{type(error).__name__}: {error}")
            return self._all_failed(project, f"the listing is not understood: {error}")
        if isinstance(error, Denied) and error.code.lower() in SWITCHED_OFF:
            return self._left_out(project, str(error))
        return self._all_failed(project, str(error))

    def _left_out(self, project: str, why: str) -> tuple[Listed, ...]:
        """Where the API is off there is no machine. Said once."""
        if project not in self._said:
            self._said.add(project)
            _LOG.warning("project left out", project=project, because=why)
        return tuple(replace(one, failed=None, skipped=one.failed) for one in self._all_failed(project, "Compute Engine is not switched on there"))

    def _all_failed(self, project: str, why: str) -> tuple[Listed, ...]:
        places = [Place(self.name, project, zone) for zone in self._places(project)] or [Place(self.name, project, NOWHERE)]
        return tuple(Listed(place, failed=f"{place}: {why}") for place in places)

    def _places(self, project: str) -> Sequence[str]:
        """The zones that we answer for: those that the settings name, else all that Google ever spoke of to us."""
        return self._settings.zones or sorted(self._zones.get(project, ()))

    def _list_project(self, project: str) -> tuple[Listed, ...]:
        """A page that fails fails the project; a zone that is not whole only itself."""
        found = self._zones_of(project)
        spoken_of = {*found.machines, *found.failed}
        self._zones.setdefault(project, set()).update(spoken_of)
        zones = self._places(project)
        if not zones:
            return self._all_failed(project, found.all_failed or "the listing names no zone; is this a project with the Compute Engine API?")
        return tuple(_listed(found, Place(self.name, project, zone)) for zone in zones)

    def _zones_of(self, project: str) -> Zones[Instance]:
        client = self._asking.client("Instances", project)
        request = {"project": project, "max_results": self._page_size}
        only, types = self._settings.zones, self._learned.types
        repeated, doing = self._repeated.setdefault(project, Repeated()), f"list instances in gcp:{project}"

        def edition() -> Hashable:
            return len(types), self._prices.edition, self._nominated.reserved(project)

        def read(zone: str, raws: Iterable[Any]) -> Iterable[Instance]:
            if only and zone not in only:
                return ()
            asked, found = parsed(zone, raws)  # first without asking: nearly always everything that machines refer to is known
            new = {instance.type for instance in found} - types.keys()
            if (new or asked.keys_asked) and self._learned.named(project, zone, new - {UNKNOWN_TYPE}, asked.keys_asked):
                repeated.begin(edition())
                _, found = parsed(zone, raws)
            return found

        def parsed(zone: str, raws: Iterable[Any]) -> tuple[learned.Asked, Sequence[Instance]]:
            asked = learned.Asked(self._learned.policies(project))
            more: dict[str, Any] = {
                "preserve": self._preserve, "price": self._prices.of, "reserved": self._nominated.reserved(project), "given": self._given.get(project),
            }  # fmt: skip

            def parse(raw: Any) -> Instance:
                return parse_instance(raw, project=project, zone=zone, types=types, policies=asked, **more)

            return asked, repeated.read(zone, raws, parse)

        def ask() -> Zones[Instance]:
            pages = client.aggregated_list(request=request, **self._clients.read()).pages
            return zones_of(messages(pages, doing), read)

        repeated.begin(edition())
        zones: Zones[Instance] = self._asking.call(doing, ask)
        repeated.end(edition())
        return zones


def _listed(found: Zones[Instance], place: Place) -> Listed:
    why = found.why_not(place.name)
    if why is not None:
        return Listed(place, failed=f"{place}: {why}")
    # a machine that moves between pages while they are read comes twice: the later page is the newer
    return Listed(place, tuple({instance.id: instance for instance in found.machines[place.name]}.values()))
