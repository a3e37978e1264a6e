"""
Disks of every zone and region of any number of projects, and what else lies about there. Reads only; implements ports.Disks.

Three listings a project, at the same time and each by itself: disks, snapshots, addresses. Only the first makes a place known or not; of
the others it is said where they could not be read. Whether a snapshot's disk is gone is told only where every disk that could be it was read.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reaper import log
from reaper.clouds.gcp.answers import SWITCHED_OFF
from reaper.clouds.gcp.asking import Asking
from reaper.clouds.gcp.below import Below
from reaper.clouds.gcp.disks import once, parse_disk
from reaper.clouds.gcp.leftovers import GLOBAL, Known, Taken, idle_address, orphan, taken
from reaper.clouds.gcp.pages import EMPTY, Zones, messages, zones_of
from reaper.clouds.gcp.permissions import READER, Permission
from reaper.clouds.gcp.prices import Prices
from reaper.clouds.gcp.rounds import Rounds
from reaper.errors import CloudError, Denied
from reaper.model import policy
from reaper.model.kinds.disk import Disk, Leftover
from reaper.model.resource import Place
from reaper.ports import Clock, Shelf

NEEDS = (
    Permission("compute.disks.list", "compute.disks.aggregatedList", READER, "no disk is known, attached or not"),
    Permission("compute.snapshots.list", "compute.snapshots.list", READER, "snapshots whose disk is gone are not reported"),
    Permission("compute.addresses.list", "compute.addresses.aggregatedList", READER, "reserved addresses that nothing uses are not reported"),
)

NOWHERE = "?"
"""The place's name where a project's zones were never told."""

T = TypeVar("T")

_LOG = log.get(__name__)


@dataclass(slots=True)
class _Found:
    """What a project's listing of disks said. ``known``: all of its disks, those outside the settings' zones too."""

    places: Zones[Disk]
    known: Known


@dataclass(slots=True)
class _Snapshots:
    taken: list[Taken] = field(default_factory=list)
    warnings: set[str] = field(default_factory=set)


class Shelves:
    """``within_s``: for a whole answer, of all projects. ``known``: zones of a project that another listing spoke of."""

    def __init__(
        self, settings: policy.GcpCloud, asking: Asking, below: Below, prices: Prices, clock: Clock, *, within_s: float, page_size: int,
        known: Callable[[str], Collection[str]],
    ) -> None:  # fmt: skip
        self._settings, self._asking, self._below, self._prices, self._clock = settings, asking, below, prices, clock
        self._within_s, self._page, self._elsewhere = within_s, page_size, known
        self._given = {project: given for project, given in settings.given.items() if given}
        self._places: dict[str, set[str]] = {}
        self._disks = Rounds("gcp-disks", self._list_disks)
        self._snapshots = Rounds("gcp-snapshots", self._list_snapshots)
        self._addresses = Rounds("gcp-addresses", self._list_addresses)

    def read(self) -> tuple[Shelf, ...]:
        """
        Every zone and region with its disks, and a place "global" for each project. A project where Compute Engine is not switched on, and never
        was, is left out. Raises CloudError where the library is not installed.
        """
        self._asking.call("load Google's client", self._asking.clients.load)
        projects, unread = self._below.search(self._within_s / 3)
        if projects:
            self._prices.learn(projects[0])
        disks, snapshots, addresses = self._disks.begin(projects), self._snapshots.begin(projects), self._addresses.begin(projects)
        asked: list[Future[Any]] = [one for one in (*disks.values(), *snapshots.values(), *addresses.values()) if one is not None]
        wait(asked, timeout=self._within_s)
        found: dict[str, _Found | CloudError] = {}
        for project, future in disks.items():
            listed = self._outcome(future, f"disks of gcp:{project}")
            found[project] = listed
        whole = {project: one.known for project, one in found.items() if isinstance(one, _Found) and self._whole(project, one)}
        shelves: list[Shelf] = []
        for project, one in found.items():
            if isinstance(one, Denied) and one.code.lower() in SWITCHED_OFF and not self._ever(project):
                continue
            lying = self._lying(project, one, whole, snapshots[project], addresses[project])
            shelves += self._shelves(project, one, *lying)
        shelves += [Shelf(Place("gcp", folder, NOWHERE), failed=f"gcp:{folder}: {why}") for folder, why in unread.items()]
        return tuple(shelves)

    # --- what was asked, put together ---------------------------------------------------------------------------------

    def _outcome(self, future: "Future[T] | None", what: str) -> T | CloudError:
        if future is None or not future.done():
            return CloudError(f"{what}: no complete answer within {self._within_s:g} s; check the network, or leave the project out")
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, CloudError):
            return error
        _LOG.error("listing not understood", what=what, error=f"{type(error).__name__}: {error}")
        return CloudError(f"{what}: the listing is not understood: {error}")

    def _shelves(
        self, project: str, found: "_Found | CloudError", leftovers: Mapping[str, list[Leftover]], unread: Callable[[str], tuple[str, ...]]
    ) -> Iterable[Shelf]:
        """``unread``: of a place's leftovers. A place that only leftovers speak of has disks that are not known."""
        spoken_of = {*self._spoken_of(project), *(place for place, lying in leftovers.items() if lying)} - {GLOBAL}
        for name in sorted(spoken_of) or [NOWHERE]:
            place = Place("gcp", project, name)
            more: dict[str, Any] = {"leftovers": tuple(leftovers.get(name, ())), "unread": unread(name)}
            if isinstance(found, CloudError):
                yield Shelf(place, failed=f"{place}: {found}", **more)
                continue
            why = found.places.why_not(name) if name != NOWHERE else found.places.all_failed or "the listing names no zone"
            disks = once(found.places.machines[name]) if why is None else ()
            yield Shelf(place, disks, failed=None if why is None else f"{place}: {why}", **more)
        yield Shelf(Place("gcp", project, GLOBAL), leftovers=tuple(leftovers.get(GLOBAL, ())), unread=unread(GLOBAL))

    def _lying(
        self, project: str, found: "_Found | CloudError", whole: Mapping[str, Known], snapshots: "Future[_Snapshots] | None",
        addresses: "Future[Zones[Leftover]] | None",
    ) -> tuple[dict[str, list[Leftover]], Callable[[str], tuple[str, ...]]]:  # fmt: skip
        leftovers: dict[str, list[Leftover]] = {}
        taken_ones = self._outcome(snapshots, f"snapshots of gcp:{project}")
        of_snapshots = self._orphans(found, whole, taken_ones, leftovers.setdefault(GLOBAL, []))
        listed = self._outcome(addresses, f"addresses of gcp:{project}")
        if not isinstance(listed, CloudError):
            for place, idle in listed.machines.items():
                leftovers.setdefault(place, []).extend({one.id: one for one in idle}.values())

        def unread(place: str) -> tuple[str, ...]:
            if place == NOWHERE or place.count("-") > 1:  # a zone: addresses are in regions, or in none
                return ()
            here = of_snapshots if place == GLOBAL else ()
            if isinstance(listed, CloudError):
                return (*here, f"addresses: {listed}")
            why = listed.why_not(place)
            return here if why is None else (*here, f"addresses of gcp:{project}:{place}: {why}")

        return leftovers, unread

    def _orphans(
        self, found: "_Found | CloudError", whole: Mapping[str, Known], listed: "_Snapshots | CloudError", into: list[Leftover]
    ) -> tuple[str, ...]:
        if isinstance(listed, CloudError):
            return (f"snapshots: {listed}",)
        if isinstance(found, CloudError):
            return (f"snapshots: whether their disks are gone is not known, since disks could not be listed: {found}",)
        unsure, told = 0, [f"snapshots: there may be more of them: Google warns: {code}" for code in sorted(listed.warnings)]
        for snapshot in listed.taken:
            known = whole.get(snapshot.project)
            if known is None:
                unsure += 1
                continue
            one = orphan(snapshot, known)
            if one is not None:
                into.append(one)
        if unsure:
            told.append(f"snapshots: of {unsure} of them it is not known whether their disk is gone, since not every zone of its project was read whole")
        return tuple(told)

    def _whole(self, project: str, found: _Found) -> bool:
        """Every place that was ever spoken of, wanted or not, and nothing that Google holds back."""
        places = found.places
        lost = places.all_failed is not None or places.failed or places.failed_regions
        return not lost and bool(places.machines) and self._ever(project) <= places.machines.keys()

    def _spoken_of(self, project: str) -> set[str]:
        """The zones and regions that we answer for: of those that Google ever spoke of to us the ones that the settings name, if they do."""
        return {name for name in {*self._ever(project), *self._settings.zones} if self._wanted(name)}

    def _ever(self, project: str) -> set[str]:
        return {*self._places.get(project, ()), *self._elsewhere(project)}

    def _wanted(self, place: str) -> bool:
        zones = self._settings.zones
        return not zones or place in zones or place == GLOBAL or any(zone.rpartition("-")[0] == place for zone in zones)

    def _within(self, disk: Disk) -> bool:
        """One in two zones is looked at where both are."""
        return not self._settings.zones or (disk.zone is not None and set(disk.zone.split(",")) <= set(self._settings.zones))

    # --- asking -------------------------------------------------------------------------------------------------------

    def _list_disks(self, project: str) -> _Found:
        """A page that fails fails the project; a zone that is not whole only itself."""
        client, doing = self._asking.client("Disks", project), f"list disks in gcp:{project}"
        request, known = {"project": project, "max_results": self._page}, Known(self._clock.now())

        def read(place: str, raws: Iterable[Any]) -> list[Disk]:
            found = []
            for raw in raws:
                known.numbers.add(str(raw.id))
                known.links.add(raw.self_link[raw.self_link.find("projects/") :])
                if self._wanted(place):
                    found.append(parse_disk(raw, project=project, place=place, price=self._prices.disk, given=self._given.get(project)))
            return [disk for disk in found if self._within(disk)]

        def ask() -> Zones[Disk]:
            pages = client.aggregated_list(request=request, **self._asking.clients.read()).pages
            return zones_of(messages(pages, doing), read, "disks", ("zones", "regions"))

        places: Zones[Disk] = self._asking.call(doing, ask)
        self._places.setdefault(project, set()).update({*places.machines, *places.failed})
        return _Found(places, known)

    def _list_snapshots(self, project: str) -> _Snapshots:
        client, doing = self._asking.client("Snapshots", project), f"list snapshots in gcp:{project}"
        request = {"project": project, "max_results": self._page}

        def ask() -> _Snapshots:
            found = _Snapshots()
            for page in messages(client.list(request=request, **self._asking.clients.read()).pages, doing):
                if page.HasField("warning") and page.warning.code not in ("", EMPTY):
                    found.warnings.add(page.warning.code)
                of = (taken(raw, project=project, price=self._prices.snapshot, given=self._given.get(project)) for raw in page.items)
                found.taken += [one for one in of if one is not None and self._place_wanted(one)]
            return found

        listed: _Snapshots = self._asking.call(doing, ask)
        return listed

    def _place_wanted(self, snapshot: Taken) -> bool:
        return not self._settings.zones or snapshot.place in self._settings.zones

    def _list_addresses(self, project: str) -> Zones[Leftover]:
        client, doing = self._asking.client("Addresses", project), f"list addresses in gcp:{project}"
        request = {"project": project, "max_results": self._page}

        def read(place: str, raws: Iterable[Any]) -> list[Leftover]:
            if not self._wanted(place):
                return []
            of = (idle_address(raw, project=project, place=place, price=self._prices.address, given=self._given.get(project)) for raw in raws)
            return [one for one in of if one is not None]

        def ask() -> Zones[Leftover]:
            pages = client.aggregated_list(request=request, **self._asking.clients.read()).pages
            return zones_of(messages(pages, doing), read, "addresses", ("regions", GLOBAL))

        listed: Zones[Leftover] = self._asking.call(doing, ask)
        return listed
