"""The Google adapter over the real client and the fake server, with short waits."""

from collections.abc import Callable
from typing import Any

from reaper.clock import SystemClock
from reaper.clouds.gcp.clients import Bounds
from reaper.clouds.gcp.cloud import GcpCloud
from reaper.clouds.gcp.pace import Pace
from reaper.demo.compute_server import ComputeServer
from reaper.model import policy
from reaper.model.resource import ResourceId
from tests.fakes.gce import PROJECT, ZONE

FAST = Bounds(connect_s=2, read_s=5, reads_s=1, stop_s=0.2, start_s=0.2, poll_s=0.01, first_retry_s=0.01)

Make = Callable[..., GcpCloud]


def adapter(server: ComputeServer, *projects: str, settings: dict[str, Any] | None = None, **more: Any) -> GcpCloud:
    """``settings``: of the model's GcpCloud beside projects and endpoint; ``more``: of the adapter."""
    clock = SystemClock()
    made = policy.GcpCloud(**{"projects": projects or (PROJECT,), "endpoint": server.url, "price_list": False, **(settings or {})})
    return GcpCloud(made, **{"clock": clock, "bounds": FAST, "pace": Pace(clock, per_s=1000, burst=1000), **more})


def gid(native: str, zone: str = ZONE, project: str = PROJECT) -> ResourceId:
    return ResourceId("gcp", project, zone, "instance", native)
