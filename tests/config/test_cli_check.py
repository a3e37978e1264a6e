"""`reaper check`: what it prints and how it ends."""

import argparse
import json
from pathlib import Path

import pytest

from reaper.cli import check

EXAMPLE = Path(__file__).parents[2] / "deploy" / "config" / "reaper.toml"
GOOD = """
schema = 1
[protect.old]
ids = ["i-0abc"]
reason = "was [bold]long[/bold] ago"
until = "2020-01-01"
[policy.all]
local_nvme = "discard"
[channels.team]
webhook = "https://chat.example.com/sesame"
"""


def call(*words: str) -> int:
    parser = argparse.ArgumentParser(prog="reaper check", epilog=check.EXAMPLES)
    check.add_arguments(parser)
    return check.run(parser.parse_args(words))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.toml"
    file.write_text(GOOD, encoding="utf-8")
    return file


def test_good_configuration_is_told_with_its_terms_and_remarks(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = call(str(good))
    out = capsys.readouterr().out

    assert code == 0
    assert "idle for 2h, held for 10h, GPU at most 5%" in out
    assert "protected: 0 in force, 1 ended" in out
    assert "was [bold]long[/bold] ago" in out
    assert 'policy.all: local_nvme = "discard" stops machines whatever is on their local disks' in out
    assert "4 an hour, 20 a day, 5% of the fleet an hour (at least 1)" in out
    assert "sesame" not in out


def test_machines_get_one_object_on_the_last_line(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = call(str(good), "--json")
    out = capsys.readouterr().out
    report = json.loads(out.splitlines()[-1])

    assert code == 0
    assert report["ok"] is True
    assert report["policies"][0]["idle_for_s"] == 7200
    assert report["protected"] == {"entries": 1, "holding": []}
    assert report["channels"] == ["team"]
    assert len(report["remarks"]) == 2
    assert "sesame" not in out


def test_every_problem_is_printed_and_the_exit_says_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('schema = 1\nmode = "on"\n[disks.scratch]\nmin_gib = 1\n', encoding="utf-8")
    code = call(str(file))
    out = capsys.readouterr().out
    machine_code = call(str(file), "--json")
    machine = json.loads(capsys.readouterr().out.splitlines()[-1])

    assert (code, machine_code) == (2, 2)
    assert f"{file}: disks: disks are not available in this version; remove the table" in out
    assert "refused: 2 problems" in out
    assert machine["ok"] is False
    assert len(machine["problems"]) == 2


def test_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = call("--schema")
    schema = json.loads(capsys.readouterr().out)

    assert code == 0
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["schema"]


def test_without_a_path_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REAPER_CONFIG", str(EXAMPLE))
    code = call()
    out = capsys.readouterr().out

    assert code == 0
    assert f"source: {EXAMPLE}" in out


def test_without_any_configuration_it_says_built_in(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check.config, "find", lambda explicit: None)
    code = call()
    out = capsys.readouterr().out

    assert code == 0
    assert "no configuration was found: this is the built-in one" in out
    assert "no scope is written: nothing may be acted on" in out


def test_vanished_configuration_is_not_the_built_in_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = call(str(tmp_path / "gone.toml"))

    assert code == 2
    assert "cannot be read" in capsys.readouterr().out


def test_end_of_a_job_is_told_with_its_own_term_and_hours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ended.toml"
    file.write_text('schema = 1\n[policy.all]\njob_ended = { for = "15m", warn = "30m", quiet = "ignore" }\n', encoding="utf-8")
    call(str(file))
    people = capsys.readouterr().out
    call(str(file), "--json")
    machines = json.loads(capsys.readouterr().out.splitlines()[-1])

    assert "job ended for 15m: warns 30m ahead, at any hour" in people
    assert machines["policies"][0]["job_ended"] == {"for_s": 900, "warn_for_s": 1800, "quiet": None}
