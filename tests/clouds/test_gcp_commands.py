"""Google Cloud from a written configuration through wiring to the commands."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reaper import config, wiring
from reaper.cli.main import main
from reaper.clock import SystemClock
from reaper.demo.compute_server import ComputeServer
from reaper.errors import ConfigurationError, ReadOnly
from reaper.metrics import Metrics
from reaper.model.policy import Mode
from reaper.wiring import build_clouds
from tests.clouds.gce import gid
from tests.fakes.gce import OTHER_ZONE, PROJECT, ZONE, compute_server

CONFIGURATION = """
schema = 1
name = "story"
mode = "enforce"
[clouds.gcp]
projects = ["{project}"]
endpoint = "{endpoint}"
[scope]
tags = {{ team = ["ml"] }}
verbs = ["stop"]
[policy.all]
mode = "enforce"
idle = {{ for = "2h" }}
"""


@pytest.fixture
def server() -> Iterator[ComputeServer]:
    with compute_server() as made:
        yield made


@pytest.fixture
def file(server: ComputeServer, tmp_path: Path) -> Path:
    written = tmp_path / "reaper.toml"
    written.write_text(CONFIGURATION.format(project=PROJECT, endpoint=server.url))
    return written


@pytest.mark.parametrize(("ceiling", "refused"), [(Mode.OBSERVE, ("stop", "start")), (Mode.ENFORCE, ("start",))], ids=str)
def test_a_process_has_no_object_that_can_do_more_than_it_may(server: ComputeServer, file: Path, ceiling: Mode, refused: tuple[str, ...]) -> None:
    resource = gid(server.world.launch("m", PROJECT, ZONE)["id"])
    clouds = build_clouds(config.load(file), ceiling, SystemClock(), Metrics())

    assert list(clouds) == ["gcp"]
    for verb in refused:
        with pytest.raises(ReadOnly):
            getattr(clouds["gcp"], verb)(resource)
    assert server.calls == []


def test_without_googles_client_it_says_how_to_install_it(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.compute_v1", None)

    with pytest.raises(ConfigurationError, match=r"clouds\.gcp: Google's client is not installed.*pip install 'idle-reaper\[gcp\]'"):
        wiring.build(config.load(file), tmp_path / "state")


def test_inventory_shows_machines_of_every_zone_and_the_failed_ones(server: ComputeServer, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = server.world.launch("trainer", PROJECT, ZONE, "g2-standard-24", labels={"team": "ml", "owner": "ada"})["id"]
    server.world.lost[OTHER_ZONE] = "unreachable"
    words = ("--config", str(file), "--state", str(tmp_path / "state"))

    codes = main(["inventory", *words, "--refresh", "--json"]), main(["inventory", *words])
    lines = capsys.readouterr().out.splitlines()
    told = next(json.loads(line) for line in lines if line.startswith("{"))

    assert codes[1] == 0
    assert [(m["resource"], m["name"], m["gpus"], m["gpu_model"], m["owner"], m["place"]) for m in told["machines"]] == [
        (str(gid(seen)), "trainer", 2, "L4", "ada", ZONE)
    ]
    assert [place["place"] for place in told["failed_places"]] == [f"gcp:{PROJECT}:{OTHER_ZONE}"]


def test_plan_names_the_machine_and_sends_no_verb(server: ComputeServer, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server.world.launch("trainer", PROJECT, ZONE, labels={"team": "ml"})

    main(["plan", "--config", str(file), "--state", str(tmp_path / "state")])

    assert "trainer" in capsys.readouterr().out
    assert server.mutations() == []
