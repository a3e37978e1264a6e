"""
A fake Compute Engine over HTTP, for the demo and the tests. Standard library only.

It pages, takes time over operations, fails on request, and refuses what Google refuses (see `compute_world`). The tests
hold every request, answer and resource of it to Google's own discovery document, through the two hooks of `Checks`.
"""

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from reaper.demo.compute_beside import ROUTES as BESIDE
from reaper.demo.compute_beside import Beside
from reaper.demo.compute_shelves import NotThere
from reaper.demo.compute_world import Json, Refusal, World

_ZONE = "/compute/v1/projects/{project}/zones/{zone}"
_ROUTES = (
    ("GET", "/compute/v1/projects/{project}/aggregated/instances", "compute.instances.aggregatedList"),
    ("GET", "/compute/v1/projects/{project}/aggregated/resourcePolicies", "compute.resourcePolicies.aggregatedList"),
    ("GET", _ZONE + "/instances/{instance}", "compute.instances.get"),
    ("DELETE", _ZONE + "/instances/{instance}", "compute.instances.delete"),
    *(("POST", _ZONE + "/instances/{instance}/" + verb, f"compute.instances.{verb}") for verb in ("stop", "start", "suspend", "resume", "setLabels")),
    ("GET", _ZONE + "/machineTypes/{machineType}", "compute.machineTypes.get"),
    ("GET", _ZONE + "/operations/{operation}", "compute.zoneOperations.get"),
    ("GET", "/compute/v1/projects/{project}/aggregated/disks", "compute.disks.aggregatedList"),
    ("GET", _ZONE + "/disks/{disk}", "compute.disks.get"),
    ("GET", "/compute/v1/projects/{project}/regions/{region}/disks/{disk}", "compute.regionDisks.get"),
    ("GET", "/compute/v1/projects/{project}/global/operations/{operation}", "compute.globalOperations.get"),
    ("GET", "/compute/v1/projects/{project}/global/snapshots", "compute.snapshots.list"),
    ("POST", "/compute/v1/projects/{project}/global/snapshots", "compute.snapshots.insert"),
    ("GET", "/compute/v1/projects/{project}/aggregated/addresses", "compute.addresses.aggregatedList"),
    ("GET", "/compute/v1/projects/{project}/aggregated/commitments", "compute.regionCommitments.aggregatedList"),
    *BESIDE,
)
_MUTATING = frozenset(method for verb, _, method in _ROUTES if verb != "GET" and not method.endswith(".testIamPermissions"))


class Checks(Protocol):
    def request(self, method: str, verb: str, path: str, query: Mapping[str, str], body: Json | None) -> None:
        """Raises where the request is not one that Google's document knows."""
        ...

    def answer(self, method: str, body: Json) -> None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One request that arrived. ``method``: Google's own name of it ("compute.instances.stop")."""

    method: str
    project: str
    parts: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass
class Fault:
    """
    What the next ``times`` calls of ``method`` (in ``project``, for ``zone``, where those are given) meet instead: an
    answer with ``status``, or with none a connection that just ends. ``after``: what was asked is carried out first; ``skip``:
    so many of them pass before it begins.
    """

    method: str
    status: int | None = 503
    reason: str = "backendError"
    message: str = "injected"
    times: float = 1
    project: str | None = None
    zone: str | None = None
    after: bool = False
    delay_s: float = 0.0
    skip: int = 0


@dataclass
class ComputeServer:
    """
    Use as a context manager; ``url`` is its address on loopback, ``world`` what it holds. ``ahead``: how far its Date
    header is ahead of the real time. ``port`` 0: any.
    """

    world: World = field(default_factory=World)
    beside: Beside = field(default_factory=Beside)
    checks: Checks | None = None
    port: int = 0
    ahead: timedelta = timedelta(0)
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._server.daemon_threads = True
        self._stop = threading.Event()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.world.base = self.url
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="compute-server", daemon=True)

    def __enter__(self) -> "ComputeServer":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fail(self, method: str, status: int | None = 503, reason: str = "backendError", **more: Any) -> None:
        self.faults.append(Fault(method, status, reason, **more))

    def methods(self) -> list[str]:
        return [call.method for call in self.calls]

    def mutations(self) -> list[str]:
        return [method for method in self.methods() if method in _MUTATING]

    # --- one request --------------------------------------------------------------------------------------------------

    def take(self, verb: str, target: str, raw: bytes, headers: Mapping[str, str]) -> Json | None:
        """The answer; None: the connection ends without one. Raises Refusal."""
        address = urlsplit(target)
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        body: Json | None = json.loads(raw) if raw else None
        method, parts = _route(verb, address.path)
        with self.world.lock:
            self.calls.append(Call(method, parts.get("project", ""), parts, query, headers))
            fault = self._fault(method, parts)
        if self.checks is not None:
            self.checks.request(method, verb, address.path, query, body)
        if fault is not None:
            self._stop.wait(fault.delay_s)
        if fault is None or fault.after or (fault.delay_s and fault.status == 200):
            with self.world.lock:
                if parts.get("project") in self.world.denied:
                    raise Refusal(403, "forbidden", f"Required 'compute.instances.list' permission for 'projects/{parts['project']}'")
                if parts.get("project") in self.world.off:
                    raise Refusal(403, "accessNotConfigured", f"Compute Engine API has not been used in project {parts['project']} before or it is disabled.")
                self.world.settle()
                answer: Json = json.loads(json.dumps(self._carried_out(method, parts, query, body, unquote(address.path))))
            if self.checks is not None:
                self.checks.answer(method, answer)
            if fault is None or fault.status == 200:
                return answer
        if fault.status is None:
            return None
        raise Refusal(fault.status, fault.reason, fault.message)

    def _carried_out(self, method: str, parts: Mapping[str, str], query: Mapping[str, str], body: Json | None, path: str) -> Json:
        try:
            if not method.startswith("compute."):
                return self.beside.answer(method, parts, query, body, path)
            return _carry_out(self.world, method, parts, query, body)
        except PermissionError as error:
            raise Refusal(403, "forbidden", str(error)) from error
        except NotThere as error:
            raise Refusal(404, "notFound", str(error)) from error
        except KeyError:
            raise
        except LookupError as error:
            raise Refusal(404, "notFound", str(error)) from error

    def _fault(self, method: str, parts: Mapping[str, str]) -> Fault | None:
        for fault in self.faults:
            fits = fault.project in (None, parts.get("project")) and fault.zone in (None, parts.get("zone"))
            if fault.method == method and fault.times > 0 and fits:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None


def _compiled(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+?)", path))


_TABLE = tuple((verb, _compiled(path), method) for verb, path, method in _ROUTES)


def _route(verb: str, path: str) -> tuple[str, dict[str, str]]:
    for known, pattern, method in _TABLE:
        found = pattern.fullmatch(path)
        if known == verb and found is not None:
            return method, {name: unquote(value) for name, value in found.groupdict().items()}
    raise Refusal(404, "notFound", f"{verb} {path} is not a method of this server")


def _carry_out(world: World, method: str, parts: Mapping[str, str], query: Mapping[str, str], body: Json | None) -> Json:
    project, zone, action = parts["project"], parts.get("zone", ""), method.rpartition(".")[2]
    if method in ("compute.disks.get", "compute.regionDisks.get"):
        place = f"zones/{zone}" if zone else f"regions/{parts['region']}"
        return world.shelves.disk(f"projects/{project}/{place}/disks/{parts['disk']}")
    if method == "compute.snapshots.list":
        return world.listed(project, "snapshot", query)
    if method == "compute.snapshots.insert":
        return world.snapshot(project, body or {}, query)
    if action == "aggregatedList":
        if project not in world.zones:
            raise Refusal(404, "notFound", f"The resource 'projects/{project}' was not found")
        return world.aggregated(method.split(".")[1].replace("regionC", "c"), project, int(query.get("maxResults", 0)), query.get("pageToken"))
    if method == "compute.machineTypes.get":
        return world.machine_type(project, zone, parts["machineType"])
    if method in ("compute.zoneOperations.get", "compute.globalOperations.get"):
        return world.operation(project, zone, parts["operation"])
    name = parts["instance"]
    match action:
        case "get":
            return world.instance(project, zone, name)
        case "delete":
            return world.delete(project, zone, name, query)
        case "setLabels":
            return world.set_labels(project, zone, name, body or {}, query)
        case _:
            return world.act(action, project, zone, name, query)


def _handler(server: ComputeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            try:
                body = server.take(self.command, self.path, raw, headers)
                status = 200
            except Refusal as refusal:
                status, body = refusal.status, _error(refusal.status, refusal.reason, refusal.message)
            except Exception as error:  # noqa: BLE001 - a fake that is wrong must be seen, not hang
                status, body = 500, _error(500, "fakeIsWrong", f"{type(error).__name__}: {error}")
            if body is None:
                self.close_connection = True
                return
            told = json.dumps(body).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=UTF-8")
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client gave up waiting

        do_GET = do_POST = do_DELETE = answer

        def date_time_string(self, timestamp: float | None = None) -> str:
            moment = server.world.clock.now() if timestamp is None else datetime.fromtimestamp(timestamp, UTC)
            return format_datetime(moment + server.ahead, usegmt=True)

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


def _error(status: int, reason: str, message: str) -> Json:
    return {"error": {"code": status, "message": message, "errors": [{"message": message, "domain": "global", "reason": reason}]}}


