"""The stage with Google's machines: the fake Compute server in EC2's place, and agents that learn who they are from a metadata server."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reaper.demo.compute_server import ComputeServer
from tests.fakes import nvml
from tests.fakes.gce import PROJECT, ZONE
from tests.fakes.google_metadata import FakeGoogleMetadata
from tests.fakes.moto_ec2 import MotoEc2
from tests.story import stage
from tests.story.stage import Host, Stage

TYPE = "n1-standard-8"
AWS = '[clouds.aws]\nregions = ["us-east-1"]\n'
GOOGLE = f'[clouds.gcp]\nprojects = ["{PROJECT}"]\n'


@dataclass
class GoogleHost(Host):
    @property
    def id(self) -> str:
        return f"gcp:{PROJECT}:{ZONE}:instance:{self.native}"


@dataclass
class GoogleStage(Stage):
    """``server`` holds the machines; there is no EC2 API. Every host has a metadata server of its own."""

    server: ComputeServer = field(kw_only=True)
    metadata: dict[str, FakeGoogleMetadata] = field(default_factory=dict)

    @classmethod
    def over(cls, server: ComputeServer, folder: Path, library: Path, webhook: str) -> "GoogleStage":
        return cls(folder, MotoEc2("http://127.0.0.1:9"), library, webhook, server=server)

    def launch(self, name: str, gpus: int = 1, phase: str = "research", **more: Any) -> Host:
        """``more``: of Google's own resource; labels are added to the usual ones."""
        labels = {"team": "ml", "phase": phase, "owner": "ada", **more.pop("labels", {})}
        cards = [{"acceleratorType": "nvidia-tesla-v100", "acceleratorCount": gpus}]
        native = self.server.world.launch(name, PROJECT, ZONE, TYPE, labels=labels, guestAccelerators=cards, **more)["id"]
        folder = self.folder / "hosts" / name
        folder.mkdir(parents=True)
        host = GoogleHost(name, native, gpus, folder, nvml.State(folder / "gpus"))
        host.load("gpu * util 0")
        self.hosts[name] = host
        self.metadata[name] = FakeGoogleMetadata(PROJECT, ZONE, native, TYPE).__enter__()
        return host

    def configure(self, protected: Host) -> None:
        text = stage.CONFIGURATION.replace(AWS, GOOGLE)
        assert GOOGLE in text
        (self.folder / "reaper.toml").write_text(text.format(endpoint=self.server.url, protected=protected.id, webhook=self.webhook))

    def identity_lines(self, host: Host) -> str:
        return f'metadata = "{self.metadata[host.name].endpoint}"\n'

    def state_of(self, host: Host) -> str:
        return str(self.server.world.machine(host.native)["status"])

    def close(self) -> None:
        super().close()
        for server in self.metadata.values():
            server.__exit__(None, None, None)
