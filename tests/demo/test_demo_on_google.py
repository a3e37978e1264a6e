"""The demo's machines on Google Cloud, where its client is installed: the same story, on two clouds."""

import tomllib
from datetime import UTC, datetime, timedelta

import pytest

from reaper import config
from reaper.clouds.gcp.types import model
from reaper.demo.compute_world import TYPES
from reaper.demo.local_google import PROJECT, ZONE, LocalGoogle
from reaper.demo.running import configuration_text
from reaper.demo.story import CHIPS, ON_GOOGLE, STORY, Act, tags_of, told

AWS, GOOGLE = "http://127.0.0.1:5000", "http://127.0.0.1:6000"


def test_it_is_the_same_story_on_one_cloud_or_two() -> None:
    one, two = told(google=False), told(google=True)

    assert one == STORY
    assert [(m.name, m.act, m.ends, m.twist, m.tags) for m in two] == [(m.name, m.act, m.ends, m.twist, m.tags) for m in one]
    assert {m.cloud for m in one} == {"aws"}
    assert {m.name for m in two if m.cloud == "gcp"} == set(ON_GOOGLE)
    assert {m.ends for m in two if m.cloud == "gcp"} >= {"stopped", "working", "held", "protected"}


def test_its_types_have_the_gpus_that_its_agents_will_report_and_no_local_disks() -> None:
    for name, type_name in ON_GOOGLE.items():
        accelerator, count, ssds = TYPES[type_name]
        chip = CHIPS[type_name]
        assert accelerator is not None, name
        assert (count, ssds) == (chip.count, 0)
        assert set(model(accelerator).lower().split()) <= set(chip.model.lower().replace("-", " ").split())


@pytest.mark.parametrize("google", [None, GOOGLE])
def test_its_configuration_names_google_where_it_is(google: str | None) -> None:
    read = config.parse(tomllib.loads(configuration_text(AWS, google)))

    assert read.aws is not None
    assert (read.gcp is None) is (google is None)
    if read.gcp is not None:
        assert (read.gcp.projects, read.gcp.endpoint) == ((PROJECT,), GOOGLE)
    assert {machine.type for machine in told(google is not None)} <= set(read.prices)


def test_a_machine_is_launched_with_its_labels_and_its_age() -> None:
    box = next(machine for machine in told(google=True) if machine.name == "box-forgotten")
    google = LocalGoogle()
    try:
        resource = google.launch(box)
        before = dict(google.states())
        shown = google._server.world.machine(resource.native)
    finally:
        google.close()

    assert (resource.account, resource.place) == (PROJECT, ZONE)
    assert before == {"box-forgotten": "running"}
    assert shown["labels"] == {key: value for key, value in tags_of(box).items() if key != "Name"}
    assert datetime.now(UTC) - datetime.fromisoformat(shown["lastStartTimestamp"]) > timedelta(hours=29)
    assert box.act is Act.NOTHING
