"""`reaper plan` and what it shows."""

import re
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from reaper.cli import fleet, screen
from reaper.errors import Denied
from reaper.model.kinds.instance import InstanceState
from reaper.model.mark import Stage
from tests import builders as make
from tests.builders import HERE, HOUR, MINUTE, NOW
from tests.cli.conftest import OBSERVING, Room

NASTY = "\x1b[2J[bold red]gone[/] \u202eevil\nsecond :bomb:"


def test_without_an_agent_it_tells_what_runs_since_when_whose_and_what_is_not_tagged(room: Room) -> None:
    room.machine("i-01", "trainer", gpus=8, launched_at=NOW - 50 * HOUR)
    room.cloud.put(make.instance("i-02", name="mystery", tags={}))
    answer = room.reaper("plan")

    assert answer.code == 0
    row = next(line for line in answer.out.splitlines() if "trainer" in line)
    for word in (str(make.resource()), "g5.xlarge", "8 GPUs", "ada", "exploration", "no agent", "2026-03-02T10:00:00Z", "keep"):
        assert word in row
    assert "2 running with 9 GPUs, $3.00 an hour" in answer.out
    assert "of them 2 without an agent, 1 without an owner tag, 1 without a policy" in answer.out


def test_it_touches_nothing_and_moves_no_mark(room: Room) -> None:
    room.due()
    with room.store() as store:
        before = store.marks()
    answer = room.reaper("plan")

    assert answer.code == 0
    assert room.cloud.verbs() == []
    with room.store() as store:
        assert store.marks() == before
        assert store.audit() == ()


def test_what_is_due_is_to_be_done_with_what_it_saves_and_the_plan_is_kept(room: Room) -> None:
    room.due()
    answer = room.reaper("plan", "--json")
    told = answer.json

    assert answer.code == 0
    assert [(a["name"], a["action"], a["usd_per_hour"]) for a in told["actions"]] == [("trainer", "stop", 1.5)]
    assert told["machines"][0]["mark"]["stage"] == "due"
    with room.store() as store:
        kept = store.plan(told["plan"])
    assert kept is not None
    assert len(kept.actions) == 1


def test_the_last_line_says_how_to_carry_it_out(room: Room) -> None:
    room.due()

    assert re.search(r"^plan (p-\S+); to carry it out now: reaper apply \1$", room.reaper("plan").out.rstrip(), re.MULTILINE)


def test_a_countdown_shows_what_is_left(room: Room) -> None:
    room.machine()
    room.list_all()
    room.report()
    room.mark(Stage.WARNED, waited=2 * MINUTE)
    answer = room.reaper("plan")

    assert "stop in 3m" in answer.out
    assert room.reaper("plan", "--json").json["machines"][0]["mark"]["due_in_s"] == 180


def test_in_observe_it_says_would_and_withholds(room: Room) -> None:
    room.configure(OBSERVING)
    room.due()
    told = room.reaper("plan", "--json").json
    answer = room.reaper("plan")

    assert [(w["by"], w["because"]) for w in told["withheld"]] == [("mode", "mode is observe")]
    assert told["actions"] == []
    assert "mode observe (nothing is touched)" in answer.out
    assert "would stop: due" in answer.out
    assert "withheld: 1" in answer.out


def test_a_running_reapers_listing_is_used_and_no_cloud_is_asked(room: Room) -> None:
    room.machine()
    room.list_all()
    room.led_by_another()
    room.cloud.calls.clear()
    told = room.reaper("plan", "--json").json

    assert told["listed_by"] == "the reaper that leads"
    assert [m["name"] for m in told["machines"]] == ["trainer"]
    assert ("list", None) not in room.cloud.calls


def test_a_failed_place_is_named_and_keeps_its_machines(room: Room) -> None:
    room.machine()
    room.list_all()
    room.cloud.put(make.instance("i-02", id=make.resource("i-02", place="us-east-1")))
    room.cloud.failed_places[HERE] = "throttled"
    answer = room.reaper("plan")

    assert answer.code == 0
    assert f"not read: {HERE}: throttled; its 1 machines are shown as listed 10s ago" in answer.out
    assert "trainer" in answer.out


def test_no_cloud_readable_is_a_failure_that_says_what_is_missing(room: Room) -> None:
    room.cloud.fail("list", Denied("ask AWS whose credentials these are: no usable AWS credentials"), times=2)
    answer, machine = room.reaper("plan"), room.reaper("plan", "--json")

    assert (answer.code, machine.code) == (1, 1)
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in answer.out
    assert machine.json["problems"] == ["aws: ask AWS whose credentials these are: no usable AWS credentials"]


def test_no_machines_is_nothing_to_do(room: Room) -> None:
    room.cloud.places.add(HERE)
    answer = room.reaper("plan")

    assert answer.code == 3
    assert "there are no machines" in answer.out


def test_stopped_machines_are_counted_and_shown_on_request(room: Room) -> None:
    room.machine()
    room.machine("i-02", "sleeper", state=InstanceState.STOPPED)

    assert "1 stopped are not shown (--all)" in room.reaper("plan").out
    assert "sleeper" not in room.reaper("plan").out
    assert "sleeper" in room.reaper("plan", "--all").out
    assert len(room.reaper("plan", "--json").json["machines"]) == 2


def test_strangers_text_stays_text(room: Room) -> None:
    room.machine(name=NASTY, tags={"owner": NASTY, "team": "ml"})
    answer = room.reaper("plan")

    row = next(line for line in answer.out.splitlines() if "gone" in line)
    assert "[2J[bold red]gone[/] evil second :bomb:" in row
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", answer.out)


def test_another_mode_than_the_running_reapers_is_pointed_out(room: Room) -> None:
    room.due()
    room.configure(OBSERVING)

    assert "the last cycle ran in enforce, and" in room.reaper("plan").out


def test_a_kill_switch_withholds_everything(room: Room) -> None:
    room.due()
    (room.state / "STOP").write_text("we move house")
    told = room.reaper("plan", "--json").json

    assert told["actions"] == []
    assert "we move house" in told["kill_switch"]
    assert "we move house" in room.reaper("plan").out


@pytest.mark.parametrize("width", [100, 160])
def test_a_terminals_table_fits_and_keeps_ids_whole(room: Room, width: int, capsys: pytest.CaptureFixture[str]) -> None:
    native = "i-0a1b2c3d4e5f60718"
    room.machine(native, "a-trainer-with-a-long-name-of-its-own", gpus=8, type="p4d.24xlarge", tags={"owner": "somebody@example.com"})
    told = room.reaper("plan", "--json").json
    out = StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None, markup=False, emoji=False, highlight=False)
    fleet.show(told, NOW, console)
    text = out.getvalue()

    assert native in text
    assert all(len(line) <= width for line in text.splitlines()[1:])  # the first names the configuration's path, whole


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param({"mark": None, "verdict": "keep"}, "", id="nothing comes"),
        pytest.param({"mark": None, "verdict": "act"}, "stop after a warning", id="not nominated yet"),
        pytest.param({"mark": {"stage": "nominated", "paused": None}}, "stop, to be warned", id="nobody took the warning yet"),
        pytest.param({"mark": {"stage": "warned", "paused": "starved"}}, "stop paused", id="stands still"),
        pytest.param({"mark": {"stage": "warned", "paused": None, "due_in_s": None}}, "stop later", id="no end in sight"),
        pytest.param({"mark": {"stage": "warned", "paused": None, "due_in_s": 90}}, "stop in 1m 30s", id="counting"),
        pytest.param({"mark": {"stage": "warned", "paused": None, "due_in_s": 90}, "enforced": False}, "would stop in 1m 30s", id="observing"),
        pytest.param({"mark": {"stage": "due", "paused": None}, "verdict": "act"}, "stop: due", id="due"),
        pytest.param({"mark": {"stage": "due", "paused": None}, "verdict": "wait"}, "stop held", id="due and held"),
    ],
)
def test_next_step(machine: dict[str, object], expected: str) -> None:
    assert fleet.next_step({"action": "stop", "verdict": "act", "enforced": True} | machine) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\tb\r\nc", "a b c"),
        ("\x1b[31mred\x9b0m", "[31mred0m"),
        ("a\u200bb\u2066c\u2029d", "abc d"),
        ("träner 训练", "träner 训练"),
        ("x" * 400, "x" * 299 + "…"),
        ("\ud800", ""),
    ],
)
def test_clean(text: str, expected: str) -> None:
    assert screen.clean(text) == expected


def test_a_span_in_the_future_is_never_negative() -> None:
    assert screen.ago(NOW + timedelta(seconds=5), NOW) == "0s ago"
