"""The demo's pieces, without running it."""

import os
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event as Flag

import pytest

from reaper import config
from reaper.cli import demo as command
from reaper.decide.guards import GUARDS
from reaper.demo.events import Event, Line, Summary
from reaper.demo.local_ec2 import only_local_credentials
from reaper.demo.running import configuration_text
from reaper.demo.screens import Recorder
from reaper.demo.silicon import ScriptedHost, Silicon
from reaper.demo.story import CHIPS, STORY, Act, tags_of
from reaper.errors import ConfigurationError, UsageError
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.policy import Mode
from reaper.model.resource import ResourceId
from reaper.model.signal import State

LOOPBACK = "http://127.0.0.1:5000"


class ManualClock:
    def __init__(self) -> None:
        self.at_s = 1000.0

    def boot_s(self) -> float:
        return self.at_s

    def utc(self) -> datetime:
        return datetime(2027, 1, 4, tzinfo=UTC)

    def wait(self, event: Flag, for_s: float) -> bool:
        return event.is_set()


def instance(name: str) -> Instance:
    machine = next(m for m in STORY if m.name == name)
    return Instance(ResourceId("aws", "123456789012", "us-east-1", "instance", "i-0abc"), machine.type, InstanceState.RUNNING, tags=tags_of(machine))


def test_the_storys_configuration_is_one_that_the_product_takes() -> None:
    read = config.parse(tomllib.loads(configuration_text(LOOPBACK)))

    assert read.mode is Mode.ENFORCE
    assert read.aws is not None
    assert read.aws.endpoint == LOOPBACK
    assert {machine.name: len(read.policies_for(instance(machine.name))) for machine in STORY} == {machine.name: 1 for machine in STORY}


def test_the_same_terms_are_refused_for_a_real_cloud() -> None:
    with pytest.raises(ConfigurationError, match="idle"):
        config.parse(tomllib.loads(configuration_text("https://ec2.us-east-1.amazonaws.com")))


def test_the_breaker_cannot_open_by_a_stall_of_a_slow_computer() -> None:
    breaker = config.parse(tomllib.loads(configuration_text(LOOPBACK))).budgets.breaker
    have_work = [m for m in STORY if m.act in (Act.TRAINING, Act.STARVED, Act.ONE_WORKS)]

    assert breaker is not None
    assert len(have_work) < breaker.at_least


def test_the_budget_has_room_for_what_should_stop_and_is_not_unlimited() -> None:
    stops = config.parse(tomllib.loads(configuration_text(LOOPBACK))).budgets.stops

    assert stops.per_hour is not None
    assert sum(machine.stops for machine in STORY) <= stops.per_hour < len(STORY)


def test_every_way_to_end_is_a_stop_a_guard_or_a_state() -> None:
    known = {"stopped", *(name for name, _ in GUARDS), *(state.value for state in State)}

    assert {machine.ends for machine in STORY} <= known
    assert len({machine.name for machine in STORY}) == len(STORY)
    assert all(machine.type in CHIPS for machine in STORY)


def test_a_late_read_loses_no_sample() -> None:
    clock = ManualClock()
    silicon = Silicon("m", CHIPS["g5g.xlarge"], Act.TRAINING, clock)
    clock.at_s += 2.05
    samples = silicon.read().gpus[0].samples

    assert [round(sample.at_s - 1000.0, 6) for sample in samples] == [round(0.1 * i, 6) for i in range(1, 21)]
    assert all(0.8 < sample.ratio <= 1.0 for sample in samples)


def test_a_lost_gpu_has_no_figure_and_its_neighbour_has() -> None:
    clock = ManualClock()
    silicon = Silicon("m", CHIPS["g5g.16xlarge"], Act.ONE_LOST, clock)
    clock.at_s += 0.5
    snapshot = silicon.read()

    assert snapshot.count == 2
    assert [len(gpu.samples) for gpu in snapshot.gpus] == [5, 0]
    lost = snapshot.gpus[1]
    assert (lost.mem_used_bytes, lost.processes, lost.energy_j, lost.trouble) == (None, None, None, "GPU is lost")


@pytest.mark.parametrize(("act", "cpu", "reads"), [(Act.TRAINING, 0.4, True), (Act.NOTHING, 0.02, False)])
def test_counters_of_the_host_follow_what_runs(act: Act, cpu: float, reads: bool) -> None:
    clock = ManualClock()
    silicon = Silicon("m", CHIPS["g5g.xlarge"], act, clock)
    host = ScriptedHost(silicon, clock)
    before = host.read()
    clock.at_s += 10.0
    after = host.read()

    assert before.cpu_busy_s is not None
    assert after.cpu_busy_s is not None
    assert after.cpu_busy_s - before.cpu_busy_s == pytest.approx(cpu * ScriptedHost.CPUS * 10.0)
    assert before.disk_bytes is not None
    assert after.disk_bytes is not None
    assert (after.disk_bytes - before.disk_bytes > 50 << 20) is reads


def test_the_environment_is_put_back_and_holds_nothing_real_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAREAL")
    monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", "https://ec2.example.com")
    monkeypatch.setenv("https_proxy", "http://proxy.example.com")
    before = dict(os.environ)
    with only_local_credentials(tmp_path):
        during = dict(os.environ)
    after = dict(os.environ)

    assert after == before
    assert during["AWS_ACCESS_KEY_ID"] == "demo"
    assert not {"AWS_PROFILE", "AWS_ENDPOINT_URL_EC2", "https_proxy"} & during.keys()
    assert during["AWS_EC2_METADATA_DISABLED"] == "true"
    assert not Path(during["AWS_SHARED_CREDENTIALS_FILE"]).exists()


class Nobody:
    def tell(self, event: Event, at_s: float) -> None: ...

    def show(self, lines: tuple[Line, ...]) -> None: ...

    def tick(self, now: datetime) -> None: ...

    def finish(self, summary: Summary) -> None: ...


def test_the_picture_holds_the_final_table_and_how_it_ended(tmp_path: Path) -> None:
    recorder = Recorder(Nobody(), tmp_path / "demo.svg")
    recorder.show(tuple(Line(machine, "idle", "spared", "because") for machine in STORY))
    recorder.finish(Summary(("box-forgotten",), {"llm-1": "because"}, (), timedelta(seconds=30).total_seconds(), 0.42))
    picture = (tmp_path / "demo.svg").read_text()

    assert picture.startswith("<svg")
    assert "box-forgotten" in picture
    assert "Exactly" in picture
    assert set(re.findall(r"https?://[\w.-]+", picture)) <= {"http://www.w3.org", "https://www.textualize.io", "http://www.textualize.io"}


def test_a_picture_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)

    with pytest.raises(UsageError, match="nowhere"):
        command.run(parser.parse_args(["--svg", str(tmp_path / "nowhere" / "demo.svg")]))
