"""Malformed reports: each is refused whole, with the sender's id, the field and the cause in the message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.report import ReportError, decode, decode_answer

GOOD = Path(__file__).with_name("golden").joinpath("report-v1.json").read_bytes()
SENDER = "aws:123456789012:eu-west-1:instance:i-0abc"
Change = Callable[[dict[str, Any]], object]
TERABYTE_TIMES_A_LOT = 2**63


def put(path: str, value: Any) -> Change:
    """Set the field at ``gpus.0.uuid``."""

    def change(document: dict[str, Any]) -> None:
        at: Any = document
        *way, last = [int(p) if p.isdigit() else p for p in path.split(".")]
        for part in way:
            at = at[part]
        at[last] = value

    return change


def without(path: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        *way, last = [int(p) if p.isdigit() else p for p in path.split(".")]
        for part in way:
            at = at[part]
        del at[last]

    return change


# sentence id, what is changed in the good report, the path that must be named, words of the problem
CHANGES: list[tuple[str, Change, str, str]] = [
    ("presence_is_a_list", put("presence", []), "presence", "must be an object, not a list"),
    ("somebody_at_work_has_no_kind", put("presence", {"at_work": [{"user": "ada"}]}), "presence.at_work[0].kind", "is missing"),
    ("input_is_in_the_future", put("presence", {"at_work": [{"kind": "ssh", "idle_s": -1}]}), "presence.at_work[0].idle_s", "outside 0.."),
    ("cell_runs_a_little", put("presence", {"at_work": [{"kind": "kernel", "busy": 1}]}), "presence.at_work[0].busy", "must be true or false"),
    ("too_many_at_work", put("presence", {"at_work": [{"kind": "ssh"}] * 65}), "presence.at_work", "has 65 items, more than 64"),
    ("unread_is_text", put("presence", {"unread": "all"}), "presence.unread", "must be a list, not text"),
    ("links_do_not_say_whether_they_are_all", put("links", {"peers": []}), "links.whole", "is missing"),
    ("peer_is_a_name", put("links", {"whole": True, "peers": ["node7"]}), "links.peers[0]", "is not an address"),
    ("peer_has_a_port", put("links", {"whole": True, "peers": ["10.0.0.1:80"]}), "links.peers[0]", "is not an address"),
    ("master_is_a_name", put("links", {"whole": True, "master": "localhost"}), "links.master", "is not an address"),
    ("rank_is_negative", put("links", {"whole": True, "ranks": [-1]}), "links.ranks[0]", "outside 0.."),
    ("version_is_missing", without("v"), "v", "is missing"),
    ("version_is_zero", put("v", 0), "v", "is 0, outside 1.."),
    ("version_is_text", put("v", "1"), "v", "must be a whole number, not text"),
    ("version_is_true", put("v", True), "v", "must be a whole number, not true or false"),
    ("boot_id_is_missing", without("boot_id"), "boot_id", "is missing"),
    ("boot_id_is_null", put("boot_id", None), "boot_id", "is missing"),
    ("boot_id_is_empty", put("boot_id", ""), "boot_id", "must have 1 to 256 characters, has 0"),
    ("boot_id_holds_a_line_break", put("boot_id", "a\nb"), "boot_id", "holds a character that cannot be printed"),
    ("boot_id_is_too_long", put("boot_id", "b" * 257), "boot_id", "has 257"),
    ("uptime_is_missing", without("up_s"), "up_s", "is missing"),
    ("uptime_is_negative", put("up_s", -1), "up_s", "is -1, outside 0.."),
    ("sequence_is_missing", without("seq"), "seq", "is missing"),
    ("sequence_is_a_fraction", put("seq", 1.5), "seq", "must be a whole number, not a number"),
    ("sequence_is_negative", put("seq", -1), "seq", "outside 0.."),
    ("sequence_is_beyond_64_bits", put("seq", TERABYTE_TIMES_A_LOT), "seq", "outside 0.."),
    ("window_is_missing", without("window_s"), "window_s", "is missing"),
    ("window_is_zero", put("window_s", 0), "window_s", "outside 0.1..3600; leave out a figure that is out of range"),
    ("window_is_a_day", put("window_s", 86400), "window_s", "outside 0.1..3600"),
    ("window_is_text", put("window_s", "60s"), "window_s", "must be a number, not text"),
    ("age_is_missing", without("age_s"), "age_s", "is missing"),
    ("age_is_negative", put("age_s", -0.5), "age_s", "is -0.5, outside 0.."),
    ("sampler_is_missing", without("sampler"), "sampler", "is missing"),
    ("sampler_is_text", put("sampler", "ok"), "sampler", "must be an object, not text"),
    ("sampler_has_no_state", put("sampler", {}), "sampler.state", "is missing"),
    ("sampler_state_is_a_number", put("sampler.state", 1), "sampler.state", "must be text, not a number"),
    ("beat_is_zero", put("sampler.beat_s", 0), "sampler.beat_s", "outside 0.01..600"),
    ("expected_count_is_negative", put("expected_gpus", -1), "expected_gpus", "outside 0..1024"),
    ("expected_count_is_false", put("expected_gpus", False), "expected_gpus", "must be a whole number, not true or false"),
    ("totals_are_a_list", put("totals", []), "totals", "must be an object, not a list"),
    ("energy_is_negative", put("totals.gpu_energy_j", -1), "totals.gpu_energy_j", "outside 0.."),
    ("disk_total_is_a_fraction", put("totals.disk_bytes", 1.5), "totals.disk_bytes", "must be a whole number"),
    ("gpus_are_an_object", put("gpus", {}), "gpus", "must be a list, not an object"),
    ("a_gpu_is_null", put("gpus.0", None), "gpus[0]", "must be an object, not null"),
    ("a_gpu_has_no_uuid", without("gpus.1.uuid"), "gpus[1].uuid", "is missing"),
    ("two_gpus_are_the_same", put("gpus.1.uuid", "GPU-5eed0000-0000-4000-8000-000000000000"), "gpus[1].uuid", "is the same as gpus[0].uuid"),
    ("too_many_gpus", put("gpus", [{"uuid": f"GPU-{i}"} for i in range(65)]), "gpus", "has 65 items, more than 64"),
    ("peak_is_a_percentage", put("gpus.0.peak_ratio", 97), "gpus[0].peak_ratio", "is 97, outside 0..1"),
    ("peak_is_negative", put("gpus.0.peak_ratio", -0.01), "gpus[0].peak_ratio", "outside 0..1"),
    ("peak_is_text", put("gpus.0.peak_ratio", "N/A"), "gpus[0].peak_ratio", "must be a number, not text"),
    ("peak_is_true", put("gpus.0.peak_ratio", True), "gpus[0].peak_ratio", "must be a number, not true or false"),
    ("peak_without_samples", without("gpus.0.samples"), "gpus[0].peak_ratio", "is given without samples; a peak needs"),
    ("peak_of_no_samples", put("gpus.0.samples", 0), "gpus[0].peak_ratio", "is given without samples"),
    ("peak_without_cover", without("gpus.0.covered_s"), "gpus[0].covered_s", "is missing beside a peak"),
    ("mean_above_the_peak", put("gpus.0.mean_ratio", 0.98), "gpus[0].mean_ratio", "is above the peak"),
    ("cover_is_negative", put("gpus.0.covered_s", -1), "gpus[0].covered_s", "outside 0.."),
    ("samples_are_a_fraction", put("gpus.0.samples", 1.5), "gpus[0].samples", "must be a whole number"),
    ("memory_used_is_negative", put("gpus.0.mem_used_bytes", -1), "gpus[0].mem_used_bytes", "outside 0.."),
    ("memory_used_is_above_the_total", put("gpus.0.mem_used_bytes", 81 << 30), "gpus[0].mem_used_bytes", "is above mem_total_bytes"),
    ("power_is_absurd", put("gpus.0.power_w", 1e9), "gpus[0].power_w", "outside 0..100000"),
    ("process_count_is_negative", put("gpus.0.processes", -1), "gpus[0].processes", "outside 0.."),
    ("trouble_is_a_list", put("gpus.1.trouble", ["lost"]), "gpus[1].trouble", "must be text, not a list"),
    ("loader_wait_is_a_percentage", put("loader.0.wait_ratio", 25), "loader[0].wait_ratio", "is 25, outside 0..1"),
    ("job_waited_more_than_all_the_time", put("loader.0.exact_wait_ratio", 1.01), "loader[0].exact_wait_ratio", "is 1.01, outside 0..1"),
    ("job_measured_for_a_day", put("loader.0.exact_s", 86400), "loader[0].exact_s", "outside 0.."),
    ("job_counted_backwards", put("loader.0.batches", -1), "loader[0].batches", "outside 0.."),
    ("pressure_is_a_percentage", put("loader.0.io_pressure_ratio", 50), "loader[0].io_pressure_ratio", "outside 0..1"),
    ("holding_no_gpu_is_text", put("loader.0.off_gpu", "yes"), "loader[0].off_gpu", "must be true or false"),
    ("loader_has_no_id", without("loader.0.id"), "loader[0].id", "is missing"),
    ("loader_is_an_object", put("loader", {"id": "x"}), "loader", "must be a list, not an object"),
    ("job_is_text", put("jobs.0", "session"), "jobs[0]", "must be an object, not text"),
    ("job_ended_in_the_future", put("jobs.0.ended_age_s", -5), "jobs[0].ended_age_s", "outside 0.."),
    ("hooks_do_not_say_whether_installed", without("hooks.installed"), "hooks.installed", "is missing"),
    ("hook_installed_is_text", put("hooks.installed", "yes"), "hooks.installed", "must be true or false, not text"),
    ("keep_without_a_length", without("keep.for_s"), "keep.for_s", "is missing"),
    ("keep_for_ever", put("keep.for_s", 1e12), "keep.for_s", "outside 1.."),
    ("keep_reason_holds_an_escape", put("keep.reason", "\x1b[31m"), "keep.reason", "holds a character that cannot be printed"),
    ("cpu_is_a_percentage", put("host.cpu_ratio", 25), "host.cpu_ratio", "is 25, outside 0..1"),
    ("no_cpus", put("host.cpus", 0), "host.cpus", "outside 1..65536"),
    ("rate_is_negative", put("host.net_bytes_per_s", -1), "host.net_bytes_per_s", "outside 0.."),
    ("orchestrators_are_text", put("host.orchestrators", "slurmd"), "host.orchestrators", "must be a list, not text"),
    ("an_orchestrator_is_a_number", put("host.orchestrators", ["slurmd", 1]), "host.orchestrators[1]", "must be text, not a number"),
    ("too_many_orchestrators", put("host.orchestrators", ["x"] * 65), "host.orchestrators", "has 65 items"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "path", "words"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_report_is_refused_by_sender_path_and_cause(change: Change, path: str, words: str) -> None:
    document = json.loads(GOOD)
    change(document)

    with pytest.raises(ReportError) as caught:
        decode(json.dumps(document).encode())
    error = caught.value
    assert (error.resource, error.path) == (SENDER, path)
    assert str(error).startswith(f"report of {SENDER}: {path} ")
    assert words in str(error)


# sentence id, the body, the path, words; the sender cannot be read from these
BODIES: list[tuple[str, bytes | Change, str, str]] = [
    ("nothing_at_all", b"", "body", "is not JSON"),
    ("blank", b"   ", "body", "is not JSON"),
    ("cut_off_in_the_middle", GOOD[: len(GOOD) // 2], "body", "was it cut off on the way?"),
    ("two_reports_in_one_body", GOOD + GOOD, "body", "is not JSON (Extra data"),
    ("a_list", b"[]", "body", "must be an object, not a list"),
    ("null", b"null", "body", "must be an object, not null"),
    ("a_number", b"5", "body", "must be an object, not a number"),
    ("text", b'"report"', "body", "must be an object, not text"),
    ("a_web_page", b"<html></html>", "body", "is not JSON"),
    ("not_utf8", b'{"resource":"\xff"}', "body", "is not UTF-8 (byte 13)"),
    ("utf16", GOOD.decode().encode("utf-16"), "body", "is not UTF-8"),
    ("not_a_number_as_a_figure", GOOD.replace(b"0.97", b"NaN"), "body", "holds NaN; leave out a figure that is not known"),
    ("infinity_as_a_figure", GOOD.replace(b"650.5", b"Infinity"), "body", "holds Infinity"),
    ("minus_infinity_as_a_figure", GOOD.replace(b"650.5", b"-Infinity"), "body", "holds -Infinity"),
    ("too_long", GOOD[:-1] + b" " * 70_000 + b"}", "body", "bytes, more than 65536; send one report per request"),
    ("nested_without_end", b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "body", "is nested too deeply"),
    ("a_field_twice", GOOD.replace(b'"v":1', b'"v":1,"v":1'), "v", "appears twice; send each field once"),
    ("a_figure_twice", GOOD.replace(b'"peak_ratio":0.97', b'"peak_ratio":0.97,"peak_ratio":0'), "peak_ratio", "appears twice"),
    ("sender_is_missing", without("resource"), "resource", "is missing"),
    ("sender_is_null", put("resource", None), "resource", "is missing"),
    ("sender_is_a_number", put("resource", 5), "resource", "must be text, not a number"),
    ("sender_is_a_bare_id", put("resource", "i-0abc"), "resource", "is not a resource id; write it as aws:"),
    ("sender_is_a_disk", put("resource", "aws:1:r:disk:vol-1"), "resource", "is not a resource id"),
    ("sender_holds_a_line_break", put("resource", SENDER + "\n"), "resource", "holds a character that cannot be printed"),
    ("sender_is_too_long", put("resource", SENDER + "x" * 300), "resource", "must have 1 to 256 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "path", "words"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
def test_body_without_a_readable_sender_is_refused_by_path_and_cause(body: bytes | Change, path: str, words: str) -> None:
    if not isinstance(body, bytes):
        document = json.loads(GOOD)
        body(document)
        body = json.dumps(document).encode()

    with pytest.raises(ReportError) as caught:
        decode(body)
    assert (caught.value.resource, caught.value.path) == ("?", path)
    assert words in str(caught.value)


@pytest.mark.parametrize("field", [b'"seq":86460250', b'"up_s":86460.25', b'"v":1', b'"cpu_ratio":0.25'])
def test_number_of_thousands_of_digits_is_refused_in_a_short_message(field: bytes) -> None:
    document = GOOD.replace(field, field.split(b":")[0] + b":" + b"9" * 4000)

    with pytest.raises(ReportError) as caught:
        decode(document)
    assert len(str(caught.value)) < 250


ANSWERS = [
    ("empty", b"", "body", "is not JSON"),
    ("a_web_page", b"<html>", "body", "is not JSON"),
    ("a_list", b"[1]", "body", "must be an object"),
    ("no_sequence", b"{}", "seq", "is missing"),
    ("upcoming_is_text", b'{"seq":1,"upcoming":"stop"}', "upcoming", "must be an object"),
    ("upcoming_without_an_action", b'{"seq":1,"upcoming":{"because":"x"}}', "upcoming.action", "is missing"),
    ("snooze_is_a_number", b'{"seq":1,"snoozed_until":5}', "snoozed_until", "must be text"),
]


@pytest.mark.parametrize(("body", "path", "words"), [a[1:] for a in ANSWERS], ids=[a[0] for a in ANSWERS])
def test_what_is_no_answer_of_the_reaper_is_refused(body: bytes, path: str, words: str) -> None:
    with pytest.raises(ReportError) as caught:
        decode_answer(body)
    assert (caught.value.resource, caught.value.path) == ("the reaper", path)
    assert words in str(caught.value)
