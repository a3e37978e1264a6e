"""A local Compute Engine over HTTP, for the demo's machines on Google Cloud. Asked by Google's own client, without credentials."""

from collections.abc import Mapping

from reaper.demo.compute_server import ComputeServer
from reaper.demo.compute_world import World
from reaper.demo.story import Machine, tags_of
from reaper.model.resource import ResourceId

PROJECT, ZONE = "demo-project", "us-central1-a"


class LocalGoogle:
    """``url``: where it listens, on loopback."""

    def __init__(self) -> None:
        self._server = ComputeServer(World(zones={PROJECT: (ZONE,)})).__enter__()
        self.url = self._server.url

    def launch(self, machine: Machine) -> ResourceId:
        """A running machine with its labels, which has been running for its ``age``."""
        labels = {key: value for key, value in tags_of(machine).items() if key != "Name"}  # it has a name of its own
        made = self._server.world.launch(machine.name, PROJECT, ZONE, machine.type, age=machine.age, labels=labels)
        return ResourceId("gcp", PROJECT, ZONE, "instance", str(made["id"]))

    def states(self) -> Mapping[str, str]:
        """Every machine's state by its name, in Google's own words, in small letters: what the demo is judged by."""
        self._server.world.settle()
        return {body["name"]: str(body["status"]).lower() for body in tuple(self._server.world.instances.values())}

    def close(self) -> None:
        self._server.close()
