"""Compute Engine instances of any number of projects, with the process's own credentials or a service account impersonated."""

import re
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from reaper import log
from reaper.clouds.gcp import learned, operations
from reaper.clouds.gcp.asking import Asking
from reaper.clouds.gcp.clients import Bounds, Clients
from reaper.clouds.gcp.instances import has_local_ssd, parse_instance
from reaper.clouds.gcp.labels import with_ours
from reaper.clouds.gcp.pace import Pace
from reaper.clouds.gcp.pages import Zones, zones_of
from reaper.clouds.gcp.permissions import ACTOR, READER, Permission
from reaper.errors import AnswerLost, CloudError, NotFound, Protected, Refused, Unsupported, WrongState
from reaper.model import policy
from reaper.model.kinds.instance import Instance, InstanceState, Protections
from reaper.model.kinds.snapshot import Snapshot
from reaper.model.resource import Place, ResourceId
from reaper.ports import Clock, Listed

AT_ONCE = 8
"""Projects listed at the same time."""

NEEDS = (
    Permission("compute.instances.list", "compute.instances.aggregatedList", READER, "no machine is known"),
    Permission("compute.instances.get", "compute.instances.get", READER, "nothing can be looked at again before it is stopped"),
    Permission("compute.instances.stop", "compute.instances.stop", ACTOR, "nothing can be stopped"),
    Permission("compute.instances.start", "compute.instances.start", ACTOR, "nothing that was stopped can be started again"),
    Permission("compute.instances.setLabels", "compute.instances.setLabels", ACTOR, "what was stopped is in our own record alone"),
    *learned.NEEDS,
    *operations.NEEDS,
)
"""What the roles in deploy/iam/gcp are made of."""

SEEN_FOR = timedelta(seconds=10)
"""How old a read may be that a stop relies on: as old as the one that the decision relies on."""

NOWHERE = "?"
"""The place's name where a project's zones were never told."""

_LOG = log.get(__name__)
_ZONE = re.compile(r"^[a-z]+-[a-z]+\d+-[a-z][a-z0-9]*$")
_GOAL = {"stop": InstanceState.STOPPED, "start": InstanceState.RUNNING}


class GcpCloud:
    """
    Implements ports.Cloud. ``list_within``: seconds after which a project that still has not answered is given up for
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
        self._clock = clock
        self._bounds = Bounds() if bounds is None else bounds
        clients = Clients(
            endpoint=settings.endpoint, service_account=settings.service_account, clock=clock, bounds=self._bounds, credentials=credentials, pace=pace
        )  # fmt: skip
        self._clients = clients
        self._asking = Asking(clients)
        self._learned = learned.Learned(self._asking, clock)
        self._operations = operations.Operations(self._asking, clock, self._bounds.poll_s)
        self._list_within = list_within
        self._page_size = page_size
        self._preserve = settings.local_ssd == "preserve"
        self._zones: dict[str, set[str]] = {}
        self._seen: dict[ResourceId, tuple[float, bool, bool]] = {}
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._under_way: dict[str, Future[tuple[Listed, ...]]] = {}

    # --- reads --------------------------------------------------------------------------------------------------------

    def list(self) -> tuple[Listed, ...]:
        """Every zone of every project, the projects in parallel. Raises CloudError where the library is not installed."""
        self._asking.call("load Google's client", self._clients.load)  # before the time is taken: it can be many seconds
        futures = {project: self._begin(project) for project in self._settings.projects}
        wait([future for future in futures.values() if future is not None], timeout=self._list_within)
        return tuple(listed for project, future in futures.items() for listed in self._outcome(project, future))

    def get(self, resource: ResourceId) -> Instance:
        raw = self._read(resource)
        self._learned.learn(resource.account, resource.place, [raw])
        found = self._parse(raw, resource.account, resource.place)
        failure = self._operations.how_it_ended(resource)
        return found if failure is None else replace(found, state_reason=failure)

    def protections(self, resource: ResourceId) -> Protections:
        """
        Google knows no protection from being stopped. An owner who switched deletion protection on has said that the
        machine is not ours to touch, in the only way there is; unless the operator says that this means nothing here.
        """
        try:
            raw = self._read(resource)
        except CloudError as error:
            return Protections(stop_protected=None, because=f"read deletion protection of {resource}: {error}")
        on = self._protected(raw)
        return Protections(stop_protected=on, because="deletionProtection is set" if on else None)

    def skew(self, now: datetime) -> timedelta | None:
        return self._clients.time.skew(now)

    # --- verbs --------------------------------------------------------------------------------------------------------

    def stop(self, resource: ResourceId) -> None:
        """
        By the numeric id, so that a new machine under an old name is never meant. What becomes of local SSDs is always
        said where there are some: Google refuses a stop that does not say it.
        """
        protected, local_ssd = self._just_seen(resource)
        if protected:
            raise Protected(f"stop {resource}: deletion protection is on; its owner has to lift it, this product never does")
        asked: dict[str, Any] = {"discard_local_ssd": not self._preserve} if local_ssd else {}
        self._send("stop", resource, asked, watch_s=self._bounds.stop_s)

    def start(self, resource: ResourceId) -> None:
        """Watched for some seconds, in which a sold-out zone says so."""
        self._send("start", resource, {}, watch_s=self._bounds.start_s)

    def hibernate(self, resource: ResourceId) -> None:
        raise _not_here("suspend", resource)

    def terminate(self, resource: ResourceId) -> None:
        raise _not_here("delete", resource)

    def snapshot(self, resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        raise _not_here(f"snapshot {volume} of", resource)

    def snapshots(self, resource: ResourceId, key: str) -> tuple[Snapshot, ...]:
        raise _not_here("list snapshots of", resource)

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
            self._label(resource, tags)
        except WrongState as error:
            _LOG.info("labels changed meanwhile; read and tried once more", resource=str(resource), because=str(error))
            self._label(resource, tags)

    def _label(self, resource: ResourceId, tags: Mapping[str, str | None]) -> None:
        raw = self._read(resource)
        before = dict(raw.labels)
        after = with_ours(before, tags)
        if after == before:
            return
        client = self._asking.client("Instances", resource.account)
        request = {
            "project": resource.account, "zone": resource.place, "instance": resource.native, "request_id": str(uuid.uuid4()),
            "instances_set_labels_request_resource": {"labels": after, "label_fingerprint": raw.label_fingerprint},
        }  # fmt: skip
        self._asking.call(f"label {resource}", lambda: client.set_labels_unary(request=request, **self._clients.once()), verb=True)

    def _send(self, verb: str, resource: ResourceId, asked: dict[str, Any], watch_s: float) -> None:
        """Returning means accepted. Raises what the operation ended with, where it already has and the machine shows it."""
        doing = f"{verb} {resource}"
        self._require_ours(resource)
        client = self._asking.client("Instances", resource.account)
        where = {"project": resource.account, "zone": resource.place, "instance": resource.native}
        call = getattr(client, f"{verb}_unary")
        request = {**where, **asked, "request_id": str(uuid.uuid4())}
        operation = self._asking.call(doing, lambda: call(request=request, **self._clients.once()), verb=True, where=resource.place)
        if str(operation.target_id) != resource.native:
            raise AnswerLost(f"{doing}: Google's answer does not name it; read it before anything else")
        failure = self._operations.watch(resource, verb, operation, watch_s)
        if failure is None:
            return
        try:
            raw = self._read(resource)
        except CloudError as error:
            raise AnswerLost(f"{doing}: {failure}; what became of it is not known: {error}", code=failure.code) from failure
        if self._parse(raw, resource.account, resource.place).state is not _GOAL[verb]:
            raise failure
        _LOG.warning("operation failed, and the machine is where it should be", resource=str(resource), verb=verb, because=str(failure))

    # --- one machine --------------------------------------------------------------------------------------------------

    def _require_ours(self, resource: ResourceId) -> None:
        """Raises NotFound for what these settings do not cover: an id may come from anywhere."""
        if resource.cloud != self.name or resource.kind != "instance" or not _ZONE.match(resource.place) or not resource.native.isdigit():
            raise NotFound(f"{resource} is not a Compute Engine instance; write it as gcp:project:us-central1-a:instance:1234567890")
        if resource.account not in self._settings.projects:
            raise NotFound(f"{resource} is in a project that is not listed; add it to clouds.gcp.projects")
        if self._settings.zones and resource.place not in self._settings.zones:
            raise NotFound(f"{resource} is in a zone that is not listed; add it to clouds.gcp.zones")

    def _just_seen(self, resource: ResourceId) -> tuple[bool, bool]:
        """Whether it is protected and has local SSDs, by a read that was asked for a moment ago; else it is read now, and not for long."""
        seen = self._seen.pop(resource, None)
        if seen is None or self._clock.monotonic() - seen[0] > SEEN_FOR.total_seconds():
            self._read(resource, quickly=True)
            seen = self._seen.pop(resource)
        return seen[1], seen[2]

    def _read(self, resource: ResourceId, *, quickly: bool = False) -> Any:
        """The machine's message. A deleted one is NotFound at once. ``quickly``: once, since a decision waits to be carried out."""
        self._require_ours(resource)
        asked_s, how = self._clock.monotonic(), self._clients.once(quickly=True) if quickly else self._clients.read()
        client = self._asking.client("Instances", resource.account)
        request = {"project": resource.account, "zone": resource.place, "instance": resource.native}
        answer = self._asking.call(f"read {resource}", lambda: client.get(request=request, **how))
        raw = type(answer).pb(answer)
        if str(raw.id) != resource.native:
            raise NotFound(f"read {resource}: Google's answer is about {raw.id}; it is gone, or the id is wrong")
        self._seen[resource] = (asked_s, self._protected(raw), has_local_ssd(raw))
        return raw

    def _protected(self, raw: Any) -> bool:
        return bool(raw.deletion_protection) and self._settings.deletion_protection != "ignore"

    def _parse(self, raw: Any, project: str, zone: str) -> Instance:
        return parse_instance(raw, project=project, zone=zone, types=self._learned.types, policies=self._learned.policies(project), preserve=self._preserve)

    # --- listing ------------------------------------------------------------------------------------------------------

    def _begin(self, project: str) -> "Future[tuple[Listed, ...]] | None":
        """None: the last listing's question is still out, and a second one would only queue up behind it."""
        before = self._under_way.get(project)
        if before is not None and not before.done():
            return None
        future: Future[tuple[Listed, ...]] = Future()
        self._under_way[project] = future

        def work() -> None:
            with self._slots:
                try:
                    future.set_result(self._list_project(project))
                except Exception as error:  # noqa: BLE001 - becomes the places' reason in _outcome
                    future.set_exception(error)

        # daemons: a project that hangs must not keep the process from ending
        threading.Thread(target=work, name=f"gcp-list-{project}", daemon=True).start()
        return future

    def _outcome(self, project: str, future: "Future[tuple[Listed, ...]] | None") -> tuple[Listed, ...]:
        if future is None or not future.done():
            return self._all_failed(project, f"no complete answer within {self._list_within:g} s; check the network, or leave the project out")
        error = future.exception()
        if error is None:
            return future.result()
        if not isinstance(error, CloudError):
            _LOG.error("listing not understood", project=project, error=f"{type(error).__name__}: {error}")
            return self._all_failed(project, f"the listing is not understood: {error}")
        return self._all_failed(project, str(error))

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

    def _zones_of(self, project: str) -> Zones:
        client = self._asking.client("Instances", project)
        request = {"project": project, "max_results": self._page_size}
        only = self._settings.zones

        def read(zone: str, raws: Iterable[Any]) -> Iterable[Instance]:
            if only and zone not in only:
                return ()
            self._learned.learn(project, zone, raws)
            types, policies = self._learned.types, self._learned.policies(project)
            return [parse_instance(raw, project=project, zone=zone, types=types, policies=policies, preserve=self._preserve) for raw in raws]

        def ask() -> Zones:
            pages = client.aggregated_list(request=request, **self._clients.read()).pages
            return zones_of((type(page).pb(page) for page in pages), read)

        zones: Zones = self._asking.call(f"list instances in gcp:{project}", ask)
        return zones


def _not_here(doing: str, resource: ResourceId) -> Unsupported:
    return Unsupported(f"{doing} {resource}: not available on Google Cloud in this version; nothing was done. Use action = \"stop\" for its policy")


def _listed(found: Zones, place: Place) -> Listed:
    why = found.why_not(place.name)
    if why is not None:
        return Listed(place, failed=f"{place}: {why}")
    # a machine that moves between pages while they are read comes twice: the later page is the newer
    return Listed(place, tuple({instance.id: instance for instance in found.machines[place.name]}.values()))
