"""Every problem of the settings at once, each with its place and a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import pytest

from agent import doors
from agent.config import NOBODYS_WORK, ConfigError, Settings, _names, load, read_token

GOOD = 'reaper = "https://reaper.example.com"\ntoken_file = "/etc/reaper-agent/token"\n'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return path


def problems(tmp_path: Path, text: str, env: "Dict[str, str] | None" = None) -> List[str]:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), env or {})
    return caught.value.problems


def test_defaults(tmp_path: Path) -> None:
    settings = load(write(tmp_path, GOOD), {})

    assert settings == Settings("https://reaper.example.com", token_file=Path("/etc/reaper-agent/token"))
    assert (settings.window_s, settings.beat_s, settings.metadata) == (60.0, 5.0, "http://169.254.169.254")


def test_every_key(tmp_path: Path) -> None:
    settings = load(write(tmp_path, """
        reaper = "http://127.0.0.1:8080/"
        token = "a-long-enough-token"
        resource = "aws:123456789012:eu-west-1:instance:i-0abc"
        state_dir = "/tmp/a"
        window = "1s"
        beat = "100ms"
        metadata = "http://127.0.0.1:1"
        ca_file = "/tmp/ca.pem"
        plain_http = true
        spool_reports = 5
        spool_mib = 2
        nobodys_work = ["Xorg", "my-backup"]
    """), {})  # fmt: skip

    assert settings.reaper == "http://127.0.0.1:8080"
    assert (settings.window_s, settings.beat_s) == (1.0, 0.1)
    assert settings.spool_dir == Path("/tmp/a/spool")
    assert settings.nobodys_work == ("Xorg", "my-backup")
    assert "a-long-enough-token" not in repr(settings)


def test_environment_wins_over_the_file(tmp_path: Path) -> None:
    env = {"REAPER_AGENT_REAPER": "http://localhost:1", "REAPER_AGENT_WINDOW": "2s", "REAPER_AGENT_BEAT": "0.5s",
           "REAPER_AGENT_SPOOL_REPORTS": "7", "REAPER_AGENT_NOBODYS_WORK": "a, b", "REAPER_AGENT_PLAIN_HTTP": "true", "OTHER": "x"}  # fmt: skip
    settings = load(write(tmp_path, GOOD), env)

    assert (settings.reaper, settings.window_s, settings.beat_s) == ("http://localhost:1", 2.0, 0.5)
    assert (settings.spool_reports, settings.nobodys_work, settings.plain_http) == (7, ("a", "b"), True)


def test_environment_alone_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    settings = load(None, {"REAPER_AGENT_CONFIG": str(path), "REAPER_AGENT_REAPER": "https://r", "REAPER_AGENT_TOKEN_FILE": "/t"})

    assert settings.reaper == "https://r"


TABLE = [
    ("unknown_key", 'colour = "red"', "colour: is not a setting; known are beat,"),
    ("misspelt_key", 'token_fiel = "/x"', "token_fiel: is not a setting"),
    ("table_is_no_setting", "[sampling]\nbeat = 5", "sampling: is not a setting"),
    ("window_without_unit", "window = 60", 'window: is 60; write a duration with its unit, such as "60s"'),
    ("window_with_an_unknown_unit", 'window = "1d"', "window: is '1d'; write a duration"),
    ("window_too_long", 'window = "2h"', "window: is '2h'; it must lie between 1s and 600s"),
    ("window_too_short", 'window = "10ms"', "window: is '10ms'; it must lie between 1s and 600s"),
    ("window_negative", 'window = "-5s"', "window: is '-5s'; write a duration"),
    ("beat_too_short", 'beat = "1ms"', "beat: is '1ms'; it must lie between 0.1s and 60s"),
    ("beat_longer_than_half_a_window", 'beat = "40s"', "beat: is 40s, more than half of the window of 60s; shorten the beat"),
    ("short_window_against_a_far_reaper", 'window = "10s"', "window: is shorter than 30s"),
    ("short_beat_against_a_far_reaper", 'beat = "200ms"', "beat: is shorter than 30s (beat 1s)"),
    ("resource_of_no_shape", 'resource = "i-0abc"', "resource: is 'i-0abc'; write it as aws:123456789012:eu-west-1:instance:i-0abc"),
    ("resource_is_a_disk", 'resource = "aws:1:r:disk:vol-1"', "resource: is 'aws:1:r:disk:vol-1'; write it as aws:"),
    ("resource_number", "resource = 5", "resource: must be text"),
    ("empty_token_file", 'token_file = ""', "token_file: must be text"),
    ("relative_token_file", 'token_file = "token"', "token_file: is token; write the full path"),
    ("relative_state_dir", 'state_dir = "state"', "state_dir: is state; write the full path"),
    ("token_with_a_blank", 'token = "abc def ghi"', "token: must be 8 to 512 printable characters"),
    ("token_with_a_line_break", 'token = "abcdefgh\\nX: y"', "token: must be 8 to 512 printable characters"),
    ("token_too_short", 'token = "abc"', "token: must be 8 to 512 printable characters"),
    ("both_tokens", 'token = "a-long-enough-token"', "token: stands beside token_file; keep one"),
    ("metadata_not_an_address", 'metadata = "169.254.169.254"', "metadata: is '169.254.169.254'; write it as https://"),
    ("metadata_port_out_of_range", 'metadata = "http://h:99999"', "metadata: is not an address"),
    ("plain_http_text", 'plain_http = "yes"', "plain_http: is 'yes'; write true or false"),
    ("plain_http_number", "plain_http = 1", "plain_http: is 1; write true or false"),
    ("spool_reports_zero", "spool_reports = 0", "spool_reports: is 0; it must be a whole number from 1 to 100000"),
    ("spool_reports_share", "spool_reports = 1.5", "spool_reports: is 1.5; it must be a whole number"),
    ("spool_mib_flag", "spool_mib = true", "spool_mib: is True; it must be a whole number"),
    ("nobodys_work_text_items", "nobodys_work = [1]", "nobodys_work: must be a list of process names"),
    ("nobodys_work_number", "nobodys_work = 5", "nobodys_work: must be a list of process names"),
]


@pytest.mark.parametrize(("line", "expected"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_bad_setting_is_named_with_its_remedy(tmp_path: Path, line: str, expected: str) -> None:
    base = GOOD.replace('token_file = "/etc/reaper-agent/token"\n', "") if line.startswith("token_file") else GOOD
    (problem,) = problems(tmp_path, base + line + "\n")

    assert problem.startswith("%s: %s" % (tmp_path / "agent.toml", expected))


REAPERS = [
    ("missing", "", "reaper is missing; write reaper ="),
    ("no_scheme", 'reaper = "reaper.example.com"', "reaper: is 'reaper.example.com'; write it as https://"),
    ("other_scheme", 'reaper = "ftp://reaper"', "reaper: is 'ftp://reaper'; write it as https://"),
    ("user_in_it", 'reaper = "https://me:pw@reaper"', "reaper: must not carry a user"),
    ("query_in_it", 'reaper = "https://reaper/?t=1"', "reaper: must not carry a user, a query"),
    ("unencrypted", 'reaper = "http://reaper"', "reaper: would send the token unencrypted; write https://, or plain_http = true"),
    ("not_toml", "reaper = https://reaper", 'is not TOML (', ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), [t[1:] for t in REAPERS], ids=[t[0] for t in REAPERS])
def test_bad_reaper_address_is_named_with_its_remedy(tmp_path: Path, line: str, expected: str) -> None:
    found = problems(tmp_path, line)

    assert found[0].startswith("%s: %s" % (tmp_path / "agent.toml", expected))


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, 'colour = "red"\nwindow = 60\nbeat = "x"\n', {"REAPER_AGENT_TOKEN": "x", "REAPER_AGENT_COLUR": "y"})

    assert len(found) == 6
    assert any(p.startswith("REAPER_AGENT_TOKEN: must be 8 to 512") for p in found)
    assert any(p.startswith("REAPER_AGENT_COLUR: is not a setting") for p in found)


def test_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none.toml: is not there; write it, or leave out --config"):
        load(tmp_path / "none.toml", {"REAPER_AGENT_REAPER": "https://r"})


def test_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, {"REAPER_AGENT_REAPER": "https://r"})


def test_token_comes_from_its_file_without_the_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-long-enough-token\n")

    assert read_token(Settings("https://r", token_file=tmp_path / "token")) == "a-long-enough-token"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "cannot be read"), ("", "must be text"), ("two words of it", "must be 8 to 512"), ("\u00fcnpassend", "cannot be read \\(not plain text")],
    ids=["missing", "empty", "blanks", "not_ascii"],
)
def test_bad_token_file_is_named_and_never_shown(tmp_path: Path, content: "str | None", expected: str) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content, encoding="utf-8")

    with pytest.raises(ConfigError, match="token_file: .*" + expected) as caught:
        read_token(Settings("https://r", token_file=tmp_path / "token"))
    assert not content or content not in str(caught.value)


def test_no_token_at_all_is_named() -> None:
    with pytest.raises(ConfigError, match="token_file: is missing; put the token of `reaper token issue RESOURCE` into a file"):
        read_token(Settings("https://r"))


# --- nobody's work ---


@pytest.mark.parametrize("name", ["*", "python*", "py?", "[a-z]", "/usr/bin/restic", "restic backup", "", "+"])
def test_nobodys_work_is_exact_names_and_no_patterns(tmp_path: Path, name: str) -> None:
    (problem,) = problems(tmp_path, GOOD + "nobodys_work = [%r]\n" % name)

    assert "exact name" in problem or "list of process names" in problem


@pytest.mark.parametrize(
    "name", ["python", "python3", "python3.11", "bash", "sh", "zsh", "node", "tmux", "tmux: server", "screen", "sshd", "docker", "containerd-shim", "jupyter-lab",
             "ipykernel_launcher", "torchrun", "ray", "slurmstepd", "cron", "R", "julia", "java", "make", "systemd", "train", "ssm-session-worker", "MainThread"]
)  # fmt: skip
@pytest.mark.parametrize("sign", ["", "+"])
def test_name_in_which_peoples_own_work_runs_is_refused(tmp_path: Path, name: str, sign: str) -> None:
    (problem,) = problems(tmp_path, GOOD + "nobodys_work = ['Xorg', '%s']\n" % name if not sign else GOOD + "nobodys_work = ['+%s']\n" % name)

    assert "people's own work runs" in problem or "exact name" in problem
    assert name in problem


def test_names_with_a_plus_are_added_to_the_shipped_list(tmp_path: Path) -> None:
    settings = load(write(tmp_path, GOOD + "nobodys_work = ['+my-backup', '+my-check']\n"), {})

    assert settings.nobodys_work == (*NOBODYS_WORK, "my-backup", "my-check")
    assert problems(tmp_path, GOOD + "nobodys_work = ['+my-backup', 'Xorg']\n")[0].startswith("%s: nobodys_work: mixes names" % (tmp_path / "agent.toml"))


def test_shipped_list_would_be_taken_as_settings_and_hides_no_door() -> None:
    assert _names(list(NOBODYS_WORK)) == NOBODYS_WORK
    assert [name for name in NOBODYS_WORK if doors.door(name[:15]) is not None or doors.starts_containers(name)] == []
