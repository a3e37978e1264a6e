"""The fake Compute server, held to Google's discovery document, and the real clients against it."""

import contextlib
from collections.abc import Iterator
from typing import Any

from reaper.demo.compute_server import ComputeServer
from reaper.demo.compute_world import World
from tests.fakes.discovery import Discovery

PROJECT = "ml-research"
ZONE, OTHER_ZONE = "us-central1-a", "europe-west4-b"


@contextlib.contextmanager
def compute_server(*zones: str, project: str = PROJECT) -> Iterator[ComputeServer]:
    """A server with one project in these zones (else the two above), every word of which is checked."""
    discovery = Discovery()
    world = World(zones={project: zones or (ZONE, OTHER_ZONE)}, check=discovery.resource)
    with ComputeServer(world, checks=discovery) as server:
        yield server


def google_client(kind: str, server: ComputeServer) -> Any:
    """One of the library's own clients ("Instances", "ZoneOperations"), as its documentation makes it. The scheme must be in the address."""
    from google.api_core.client_options import ClientOptions
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import compute_v1

    return getattr(compute_v1, f"{kind}Client")(credentials=AnonymousCredentials(), client_options=ClientOptions(api_endpoint=server.url))
