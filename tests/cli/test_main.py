"""The frame: finding the command, its options, its errors and its exit codes."""

import argparse
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from reaper.cli.main import COMMANDS, main, parser_of
from reaper.cli.options import log_level, state_folder
from tests.cli.conftest import Room

REAPER = [sys.executable, "-m", "reaper.cli.main"]
HEAVY = ("boto3", "botocore", "sqlalchemy", "pydantic", "msgspec", "rich", "structlog", "uvicorn", "prometheus_client", "moto")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_says_what_each_command_says_itself(name: str) -> None:
    module = importlib.import_module(COMMANDS[name][0])

    assert (name, COMMANDS[name][1]) == (module.NAME, module.HELP)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_of_the_help_is_understood(name: str) -> None:
    parser, module = parser_of(name)
    lines = [line.strip() for line in module.EXAMPLES.splitlines() if line.startswith("  reaper ")]
    commands = [shlex.split(re.split(r"\s{2,}| \| | > ", line)[0]) for line in lines]

    assert any(words[:2] == ["reaper", name] for words in commands)
    for words in commands:
        (parser if words[1] == name else parser_of(words[1])[0]).parse_args(words[2:])


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["nonsense"]])
def test_the_overview_loads_no_library(words: list[str]) -> None:
    script = f"import sys; from reaper.cli.main import main; main({words!r}); print(*sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stderr.splitlines()[-1] == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_loads_no_cloud_and_ends_well(name: str) -> None:
    script = f"import sys; from reaper.cli.main import main; code = main([{name!r}, '--help']); print('boto3' in sys.modules, file=sys.stderr); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "False\n")
    assert f"usage: reaper {name}" in done.stdout
    assert "examples:" in done.stdout
    assert "--state FOLDER" in done.stdout


def test_no_command_shows_the_overview_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["snoze"], "reaper: there is no command 'snoze'; did you mean snooze? See reaper --help", id="a misspelt command"),
        pytest.param(["--json", "plan"], "reaper: options come after the command: reaper plan --json ...; see reaper --help", id="option first"),
        pytest.param(["plan", "--jsno"], "reaper plan: unrecognized arguments: --jsno; see reaper plan --help", id="a misspelt option"),
        pytest.param(["why"], "reaper why: the following arguments are required: ID; see reaper why --help", id="no machine"),
        pytest.param(["plan", "--state", ""], "reaper plan: the state folder is empty text; name a folder, or leave --state out", id="empty state"),
        pytest.param(["plan", "--config", ""], "reaper plan: the path of the configuration is empty; name a file or folder, or leave it out", id="empty config"),
    ],
)
def test_usage_errors_are_one_line_with_the_remedy(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(words)
    told = capsys.readouterr()

    assert code == 2
    assert told.err.splitlines() == [said]


def test_every_problem_of_a_configuration_is_a_line_and_all_are_in_the_object(room: Room) -> None:
    room.configure('schema = 1\nmode = "sometimes"\ncyle = "1m"\n')

    plain, machine = room.reaper("plan"), room.reaper("plan", "--json")

    assert (plain.code, machine.code) == (2, 2)
    assert len(plain.err.splitlines()) == len(machine.json["problems"]) >= 2
    assert all(line.startswith("reaper plan: ") for line in plain.err.splitlines())
    assert machine.json["kind"] == "ConfigurationError"


def test_errors_hold_no_control_characters(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(["why", "\x1b[31mred\x07\n\u202eevil", "--state", str(tmp_path)])

    assert code in (1, 2)
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", err)


def test_a_missing_store_is_a_failure_that_says_what_makes_one(room: Room) -> None:
    answer = room.reaper("audit", "--json")

    assert answer.code == 1
    assert answer.json["kind"] == "StoreError"
    assert "`reaper run` makes it" in answer.err


def test_json_of_an_unforeseen_error_is_still_told_on_the_last_line(room: Room) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    room.cloud.before = break_down
    with pytest.raises(ZeroDivisionError):
        room.reaper("plan", "--json")

    assert json.loads(room.capsys.readouterr().out.splitlines()[-1]) == {"error": "ZeroDivisionError: a bug"}


def test_an_interrupt_ends_quietly(room: Room) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    room.cloud.before = interrupt
    answer = room.reaper("plan")

    assert (answer.code, answer.err) == (130, "")


def test_a_name_that_the_terminal_cannot_write_ends_no_command(room: Room) -> None:
    room.machine(name="träner 训练")
    room.list_all()
    command = [*REAPER, "inventory", "--state", str(room.state), "--config", str(room.folder / "reaper.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"})

    assert (done.returncode, done.stderr) == (0, "")
    assert r"tr\xe4ner \u8bad\u7ec3" in done.stdout


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    started = subprocess.Popen([*REAPER, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    with started.stderr:
        err = started.stderr.read()

    assert (started.wait(), err) == (141, b"")


def test_common_options_may_stand_before_or_after_a_commands_own_verb() -> None:
    parser, _ = parser_of("token")
    for words in (["--json", "--state", "s", "list"], ["list", "--json", "--state", "s"], ["--json", "list", "--state", "s"]):
        args = parser.parse_args(words)

        assert (args.json, args.state, args.verb) == (True, "s", "list")
    assert parser.parse_args(["list"]) == argparse.Namespace(verb="list", json=False, state=None, store=None, config=None, log_level=None, verbose=0)


def test_the_state_is_where_the_environment_says_else_the_systems_else_ones_own(tmp_path: Path) -> None:
    there = tmp_path / "var"
    there.mkdir()

    assert state_folder({"REAPER_STATE": "/x"}, there) == Path("/x")
    assert state_folder({}, there) == there
    assert state_folder({"XDG_STATE_HOME": "/h"}, tmp_path / "none") == Path("/h/idle-reaper")
    assert state_folder({"REAPER_STATE": ""}, tmp_path / "none") == Path("~/.local/state/idle-reaper").expanduser()


@pytest.mark.parametrize(
    ("asked", "more", "level"), [(None, 0, "warning"), (None, 1, "info"), (None, 5, "debug"), ("error", 2, "error")]
)
def test_log_levels(asked: str | None, more: int, level: str) -> None:
    assert log_level(asked, more, "warning") == level
