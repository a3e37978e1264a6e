"""
Bodies that agents in the field send and expect. These files are never changed: a
version that cannot read one of them any more would blind every agent of that age.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.report import (
    Answer,
    AtWork,
    Gpu,
    Holder,
    Hooks,
    Host,
    Job,
    Keep,
    Links,
    Loader,
    Person,
    Presence,
    Report,
    Sampler,
    Totals,
    UnknownVersion,
    Upcoming,
    decode,
    decode_answer,
    encode,
    is_resource_id,
)  # fmt: skip

GOLDEN = Path(__file__).with_name("golden")
FULL, LEAST, ANSWER = ((GOLDEN / name).read_bytes() for name in ("report-v1.json", "report-v1-least.json", "answer-v1.json"))

WORK = (GOLDEN / "report-v1-work.json").read_bytes()
WORK_REPORT = Report(
    resource="aws:123456789012:eu-west-1:instance:i-0abc",
    boot_id="5f0c9c5e-2a0b-4a41-9d5e-1c8f6a2b3d4e",
    up_s=86460.25,
    seq=86460250,
    window_s=60.0,
    age_s=0.75,
    sampler=Sampler("ok"),
    gpus=(
        Gpu(
            "GPU-5eed0000-0000-4000-8000-000000000000", peak_ratio=0.0, covered_s=60.0, samples=360, processes=2,
            holders=(Holder(4711, "python3", "mia", 8 << 30, 900.5), Holder(12)),
        ),
    ),
    jobs=(Job("session-3.scope@86000"), Job("job_17@80000", 120.5, "slurmstepd", True), Job("a@1", 900.0, None, True), Job("hidden-9", 5.0, None, False)),
    people=(Person("mia", 1001, "gpu", 12.0), Person("1002", 1002, "login")),
)  # fmt: skip


WAIT = (GOLDEN / "report-v1-wait.json").read_bytes()
WAIT_REPORT = Report(
    resource="aws:123456789012:eu-west-1:instance:i-0abc",
    boot_id="5f0c9c5e-2a0b-4a41-9d5e-1c8f6a2b3d4e",
    up_s=86460.25,
    seq=86460250,
    window_s=60.0,
    age_s=0.75,
    sampler=Sampler("ok"),
    gpus=(Gpu("GPU-5eed0000-0000-4000-8000-000000000000", peak_ratio=0.02, covered_s=60.0, samples=360, processes=1),),
    loader=(
        Loader(
            "pid-4711", 0.75, 0.25, 1 << 30, 3.5, read_calls=9000, called_bytes=3 << 30, write_bytes=4096, worker_cpu_cores=3.25, delayed_ratio=0.5,
            io_pressure_ratio=0.625, host_io_pressure_ratio=0.125, host_received_bytes_per_s=1048576.5, exact_wait_ratio=0.6875, exact_s=59.5, batches=1200,
        ),
        Loader("pid-4712", exact_wait_ratio=1.0, exact_s=60.0, batches=0, off_gpu=True),
    ),
)  # fmt: skip

PEOPLE = (GOLDEN / "report-v1-people.json").read_bytes()
PEOPLE_REPORT = Report(
    resource="aws:123456789012:eu-west-1:instance:i-0abc",
    boot_id="5f0c9c5e-2a0b-4a41-9d5e-1c8f6a2b3d4e",
    up_s=86460.25,
    seq=86460250,
    window_s=60.0,
    age_s=0.75,
    sampler=Sampler("ok"),
    gpus=(Gpu("GPU-5eed0000-0000-4000-8000-000000000000", peak_ratio=0.0, covered_s=60.0, samples=360, processes=1),),
    presence=Presence(
        (
            AtWork("kernel", "mia", 1001, "python3", cpu_cores=0.25, io_bytes_per_s=4096.5, busy=True, busy_s=3600.5),
            AtWork("ssh", "ada", 1000, "bash", idle_s=12.5, cpu_cores=0.0), AtWork("cron"),
        ),
        ("when somebody typed into containers' terminals",),
    ),
    links=Links(True, ("10.0.0.1", "fd00::1"), ("10.0.0.2",), (8, 9), 16, "10.0.0.2"),
)  # fmt: skip

FULL_REPORT = Report(
    resource="aws:123456789012:eu-west-1:instance:i-0abc",
    boot_id="5f0c9c5e-2a0b-4a41-9d5e-1c8f6a2b3d4e",
    up_s=86460.25,
    seq=86460250,
    window_s=60.0,
    age_s=0.75,
    sampler=Sampler("ok", "all is well", 5.0, "0.1.0/580.65.06"),
    sent_at="2026-03-01T12:00:00.750Z",
    expected_gpus=2,
    totals=Totals(123456.5, 4321.25, 1 << 40, 1 << 39),
    gpus=(
        Gpu("GPU-5eed0000-0000-4000-8000-000000000000", "NVIDIA H100 80GB HBM3", 0.97, 0.5, 60.0, 360, 40 << 30, 80 << 30, 650.5, 61728.25, 1),
        Gpu("GPU-5eed0000-0000-4000-8000-000000000001", "NVIDIA H100 80GB HBM3", trouble="lost"),
    ),
    jobs=(Job("session-4711", 120.5, "slurmstepd"),),
    loader=(Loader("pid-4711", 0.25, 0.125, 1 << 20, 3.5),),
    hooks=Hooks(True, "not-now"),
    keep=Keep(7200.0, "demo on Monday", "mia"),
    host=Host(0.25, 192, 0.5, 1048576.0, 2048.5, ("slurmd",)),
)


def test_full_report_is_read_and_written_as_ever() -> None:
    assert decode(FULL) == FULL_REPORT
    assert encode(FULL_REPORT) == FULL


def test_report_of_held_gpus_jobs_and_people_is_read_and_written_as_ever() -> None:
    assert decode(WORK) == WORK_REPORT
    assert encode(WORK_REPORT) == WORK


def test_report_of_what_jobs_waited_is_read_and_written_as_ever() -> None:
    assert decode(WAIT) == WAIT_REPORT
    assert encode(WAIT_REPORT) == WAIT


def test_report_of_people_at_work_and_connections_is_read_and_written_as_ever() -> None:
    assert decode(PEOPLE) == PEOPLE_REPORT
    assert encode(PEOPLE_REPORT) == PEOPLE


def test_reaper_that_knows_nothing_of_people_reads_the_rest() -> None:
    """What an older reaper does with a field it does not know: a newer agent's report stays a report."""
    document = json.loads(PEOPLE)
    document["presence_of_tomorrow"], document["links_of_tomorrow"] = document.pop("presence"), document.pop("links")
    older = decode(json.dumps(document).encode())

    assert (older.gpus, older.presence, older.links) == (PEOPLE_REPORT.gpus, None, None)


def test_least_report_is_read_and_written_as_ever() -> None:
    report = decode(LEAST)

    assert report == Report("gcp:my-project:europe-west4-a:instance:1234567890123456789", "b", 61.0, 61000, 60.0, 0.0, Sampler("stuck"))
    assert encode(report) == LEAST
    assert (report.expected_gpus, report.totals, report.gpus, report.loader, report.host) == (None, None, (), None, None)


def test_answer_is_read_and_written_as_ever() -> None:
    answer = Answer(86460250, Upcoming("stop", "2026-03-01T13:00:00Z", "idle for 2 h, peak 1 %"), "2026-03-02T08:00:00Z")

    assert decode_answer(ANSWER) == answer
    assert encode(answer) == ANSWER
    assert decode_answer(b'{"seq":1,"upcoming":null,"snoozed_until":null}') == Answer(1)


def test_countdown_that_stands_still_has_no_moment() -> None:
    paused = Answer(1, Upcoming("stop", None, "silent agent"))
    assert decode_answer(encode(paused)) == paused


def test_figure_of_zero_is_not_an_absent_one() -> None:
    document = json.loads(FULL)
    document["gpus"] = [{"uuid": "GPU-0", "peak_ratio": 0, "covered_s": 60, "samples": 12, "processes": 0, "mem_used_bytes": 0}]
    document["loader"], document["host"] = [], {"orchestrators": []}
    report = decode(json.dumps(document).encode())

    assert (report.gpus[0].peak_ratio, report.gpus[0].processes, report.gpus[0].mem_used_bytes) == (0.0, 0, 0)
    assert (report.gpus[0].power_w, report.gpus[0].mean_ratio) == (None, None)
    assert report.loader == ()
    assert report.host is not None
    assert (report.host.orchestrators, report.host.cpu_ratio) == ((), None)
    assert decode(encode(report)) == report


def test_null_is_the_same_as_left_out() -> None:
    document = json.loads(LEAST)
    document.update(gpus=None, loader=None, host=None, totals=None, expected_gpus=None)

    assert decode(json.dumps(document).encode()) == decode(LEAST)


def test_fields_of_a_newer_agent_are_ignored() -> None:
    document = json.loads(FULL)
    document["weather"] = [{"sky": "grey"}]
    document["gpus"][0]["temperature_c"] = 40
    document["sampler"]["beats"] = None

    assert decode(json.dumps(document).encode()) == FULL_REPORT


def test_newer_major_version_is_told_to_upgrade_the_reaper() -> None:
    document = json.loads(LEAST)
    document.update(v=2, window_s={"new": "shape"})

    with pytest.raises(UnknownVersion) as caught:
        decode(json.dumps(document).encode())
    assert str(caught.value) == (
        "report of gcp:my-project:europe-west4-a:instance:1234567890123456789: v is 2, newer than 1; upgrade the reaper before its agents"
    )


def test_report_of_sixteen_gpus_is_well_below_the_bound() -> None:
    from dataclasses import replace

    gpus = tuple(replace(FULL_REPORT.gpus[0], uuid=f"GPU-{i:036d}") for i in range(16))
    loader = tuple(replace(FULL_REPORT.loader[0], id=f"pid-{i}") for i in range(16)) if FULL_REPORT.loader else ()

    assert len(encode(replace(FULL_REPORT, gpus=gpus, loader=loader))) < 8192


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_cannot_be_written(bad: float) -> None:
    from dataclasses import replace

    with pytest.raises(ValueError, match="Out of range float values"):
        encode(replace(FULL_REPORT, up_s=bad))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aws:123456789012:eu-west-1:instance:i-0abc", True),
        ("gcp:my-project:europe-west4-a:instance:123", True),
        ("aws:1:r:disk:vol-1", False),
        ("aws:1:r:instance:i-0\n", False),
        ("i-0abc", False),
        ("", False),
        ("aws:1:r:instance:" + "i" * 300, False),
    ],
)
def test_resource_id_has_one_shape(text: str, expected: bool) -> None:
    assert is_resource_id(text) is expected
