"""What people on the machine ask to keep: who asks, what is refused, how long it lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.__main__ import main
from agent.keep import seconds
from agent.keeps import KEEPS, MOST_KEEPS, Door, Keeps, Refused, asked
from tests.agent.doubles import BOOT, OTHER, RESOURCE, Lines, ManualClock

HOUR = 3600.0
ROOT = Path(__file__).resolve().parents[2]


def keeps(folder: Path, clock: ManualClock, boot: str = BOOT) -> Keeps:
    return Keeps(folder, boot, clock, Lines(), lambda uid: "user-%d" % uid)


def test_a_wish_counts_down_in_the_reports_and_ends_by_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    kept = keeps(tmp_path, clock)
    kept.ask(1000, 4 * HOUR, "debugging  NCCL")

    told = kept.tell(RESOURCE, clock.boot_s() + 600.0)
    clock.move(4 * HOUR)

    assert told is not None
    assert (told.for_s, told.reason, told.who) == (4 * HOUR - 600.0, "debugging NCCL", "user-1000")
    assert kept.tell(RESOURCE, clock.boot_s()) is None
    assert kept.all() == []


def test_later_end_wins_and_only_its_owner_or_root_takes_a_wish_back(tmp_path: Path) -> None:
    clock = ManualClock()
    kept = keeps(tmp_path, clock)
    kept.ask(1000, 4 * HOUR, "long")
    kept.ask(1000, HOUR, "short")
    kept.ask(1001, 2 * HOUR, "another's")

    assert [one.reason for one in kept.all()] == ["long", "another's"]
    assert kept.off(1002) == []
    assert [one.reason for one in kept.off(1000)] == ["long"]
    assert [one.reason for one in kept.off(0)] == ["another's"]
    assert kept.tell(RESOURCE, clock.boot_s()) is None


def test_the_newest_wish_is_told_and_the_one_before_it_again_once_that_is_over(tmp_path: Path) -> None:
    """Whoever asked first may have asked for more than the operator allows, and must not hide who comes after."""
    clock = ManualClock()
    kept = keeps(tmp_path, clock)
    kept.ask(1000, 24 * HOUR, "for ever")
    kept.ask(1001, HOUR, "demo")
    told = kept.tell(RESOURCE, clock.boot_s())
    again = keeps(tmp_path, clock).tell(RESOURCE, clock.boot_s())
    clock.move(HOUR)
    after = kept.tell(RESOURCE, clock.boot_s())

    assert [one.who if one is not None else None for one in (told, again, after)] == ["user-1001", "user-1001", "user-1000"]


def test_a_wish_outlives_the_agent_but_not_its_own_end(tmp_path: Path) -> None:
    clock = ManualClock()
    keeps(tmp_path, clock).ask(1000, HOUR, "r")
    clock.move(1800.0)

    again = keeps(tmp_path, clock).tell(RESOURCE, clock.boot_s())
    rebooted = keeps(tmp_path, clock, "another-boot").tell(RESOURCE, clock.boot_s())
    clock.move(1800.0)

    assert again is not None
    assert again.for_s == pytest.approx(1800.0)
    assert rebooted is not None
    assert rebooted.for_s == pytest.approx(1800.0, abs=1.0)
    assert keeps(tmp_path, clock).all() == []


def test_wishes_of_a_copied_disk_are_dropped(tmp_path: Path) -> None:
    clock = ManualClock()
    first = keeps(tmp_path, clock)
    first.ask(1000, HOUR, "r")
    first.tell(RESOURCE, clock.boot_s())

    assert keeps(tmp_path, clock, "another-boot").tell(OTHER, clock.boot_s()) is None


@pytest.mark.parametrize("for_s", [float("nan"), float("inf"), -1.0, 0.0, 59.0, 31 * 86400.0])
def test_lengths_that_make_no_sense_are_refused(tmp_path: Path, for_s: float) -> None:
    with pytest.raises(Refused, match="at most 30d"):
        keeps(tmp_path, ManualClock()).ask(1000, for_s, "r")


@pytest.mark.parametrize("reason", ["", "  ", "x" * 201, "\x1b[31mred", "nul\0"])
def test_reasons_that_cannot_be_shown_are_refused(tmp_path: Path, reason: str) -> None:
    with pytest.raises(Refused, match="reason"):
        keeps(tmp_path, ManualClock()).ask(1000, HOUR, reason)


def test_number_of_wishes_is_bounded_and_one_who_has_one_may_still_prolong_it(tmp_path: Path) -> None:
    kept = keeps(tmp_path, ManualClock())
    for uid in range(1000, 1000 + MOST_KEEPS):
        kept.ask(uid, HOUR, "r")

    with pytest.raises(Refused, match="already"):
        kept.ask(2000, HOUR, "one too many")
    assert kept.ask(1000, 2 * HOUR, "longer").reason == "longer"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v":1,"boot_id":"%s","resource":null,"keeps":[{"uid":"x"}]}' % BOOT, '{"keeps":3,"boot_id":"b"}'])
def test_file_that_cannot_be_read_is_no_wish_and_no_crash(tmp_path: Path, text: str) -> None:
    (tmp_path / KEEPS).write_text(text)

    assert keeps(tmp_path, ManualClock()).all() == []


@pytest.fixture
def door(tmp_path: Path) -> Any:
    kept = keeps(tmp_path, ManualClock())
    made = Door(tmp_path / "keep.sock", kept, Lines())
    assert made.open()
    yield made, kept, tmp_path / "keep.sock"
    made.close()


def test_who_asks_is_what_the_kernel_says(door: Any) -> None:
    _, kept, path = door

    answer = asked(path, {"for_s": HOUR, "reason": "demo", "who": "root", "uid": 0})

    assert answer["kept"]["who"] == "user-%d" % os.getuid()
    assert [one.uid for one in kept.all()] == [os.getuid()]
    assert asked(path, {"off": True})["ended"][0]["reason"] == "demo"
    assert kept.all() == []


@pytest.mark.parametrize("request_", [{}, {"for_s": True, "reason": "r"}, {"for_s": "4h", "reason": "r"}, {"for_s": 60, "reason": 3}, {"for_s": 10**400, "reason": "r"}])
def test_what_is_no_wish_is_refused_and_the_socket_goes_on(door: Any, request_: Any) -> None:
    _, kept, path = door

    assert "not understood" in asked(path, request_)["error"]
    assert kept.all() == []
    assert "kept" in asked(path, {"for_s": HOUR, "reason": "still there"})


def test_socket_of_a_living_agent_is_left_alone_and_a_dead_ones_is_taken_over(door: Any, tmp_path: Path) -> None:
    first, kept, path = door

    assert not Door(path, kept, Lines()).open()
    first.close()
    assert not path.exists()
    path.write_text("no socket")
    assert not Door(path, kept, Lines()).open()
    assert path.read_text() == "no socket"


@pytest.mark.parametrize(("text", "expected"), [("4h", 4 * HOUR), ("1h30m", 1.5 * HOUR), ("2d", 48 * HOUR), ("h", None), ("", None), ("4", None), ("-4h", None)])
def test_spans_as_people_write_them(text: str, expected: float) -> None:
    assert seconds(text) == expected


def command(tmp_path: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {k: v for k, v in os.environ.items() if not k.startswith("REAPER_AGENT_")}
    env.update(PYTHONPATH=str(ROOT), REAPER_AGENT_REAPER="https://reaper.example.com", REAPER_AGENT_TOKEN="some-token-1")
    env.update(REAPER_AGENT_STATE_DIR=str(tmp_path), REAPER_AGENT_HOOK_SOCKET=str(tmp_path / "hook.sock"))
    return subprocess.run([sys.executable, "-m", "agent", "keep", *words], env=env, capture_output=True, text=True, timeout=60, check=False)


def test_command_keeps_takes_back_and_explains_what_is_wrong(door: Any, tmp_path: Path) -> None:
    made, kept, _ = door

    done = command(tmp_path, "4h", "--reason", "demo tonight", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["kept"]["reason"] == "demo tonight"
    (one,) = kept.all()
    assert one.until_at - ManualClock().utc() <= timedelta(hours=4)
    assert [command(tmp_path, *words).returncode for words in (["soon", "--reason", "r"], ["4h"], [], ["4h", "--off"])] == [2, 2, 2, 2]
    off = command(tmp_path, "--off")
    assert (off.returncode, kept.all()) == (0, [])
    made.close()
    silent = command(tmp_path, "4h", "--reason", "r")
    assert silent.returncode == 1
    assert "is it running?" in silent.stderr


def test_whoever_may_not_read_the_agents_settings_may_ask_all_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hidden = tmp_path / "agent.toml"
    hidden.write_text("what only root may read", encoding="utf-8")
    monkeypatch.setattr("agent.config.DEFAULT_PATH", hidden)
    monkeypatch.delenv("REAPER_AGENT_CONFIG", raising=False)
    monkeypatch.delenv("REAPER_AGENT_REAPER", raising=False)

    usual = (main(["keep", "4h", "--reason", "demo"]), capsys.readouterr().err)
    named = main(["keep", "4h", "--reason", "demo", "--config", str(hidden)])

    assert (usual[0], named) == (1, 2)
    assert "no agent answers at /run/reaper-agent/keep.sock" in usual[1]
