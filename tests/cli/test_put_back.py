"""A policy that lost work is put back to observe: the commands say so, and do not act on what the file says."""

import json

import pytest

from tests.builders import NOW
from tests.cli.conftest import OBSERVING, Room

LOSS = {"attempt": "a-77", "resource": "aws:111122223333:eu-west-1:instance:i-02", "at": NOW.isoformat(), "peak": 0.93, "because": "GPU-0 at 93%", "verified": True}
WORDS = "policy exploration is put back to observe: stop a-77 of aws:111122223333:eu-west-1:instance:i-02 interrupted work (GPU-0 at 93%)"


@pytest.fixture
def blamed(room: Room) -> Room:
    """A machine that nothing else stands between and its stop, under a policy that lost another one's work."""
    room.due()
    with room.store() as store:
        store.set_facts({"work-lost:exploration": json.dumps([LOSS])})
    return room


def test_plan_says_so_and_withholds(blamed: Room) -> None:
    shown = blamed.reaper("plan")
    told = blamed.reaper("plan", "--json").json

    assert WORDS in " ".join(shown.out.split())
    assert told["actions"] == []
    assert any(WORDS in note for note in told["notes"])


def test_apply_of_a_plan_made_before_stops_nothing(room: Room) -> None:
    room.due()
    plan = str(room.reaper("plan", "--json").json["plan"])
    with room.store() as store:
        store.set_facts({"work-lost:exploration": json.dumps([LOSS])})
    room.reaper("apply", plan, "--yes")

    assert room.cloud.verbs() == []


def test_why_says_so(blamed: Room) -> None:
    shown = blamed.reaper("why", "trainer")
    told = blamed.reaper("why", "trainer", "--json").json

    assert WORDS in " ".join(shown.out.split())
    assert "exploration (observe, stop)" in shown.out
    assert any(WORDS in note for note in told["notes"])


def test_check_says_so_where_it_has_the_state_at_hand(blamed: Room) -> None:
    file = str(blamed.folder / "reaper.toml")
    shown = blamed.reaper("check", file)
    told = blamed.reaper("check", file, "--json").json

    assert WORDS in " ".join(shown.out.split())
    assert any(WORDS in remark for remark in told["remarks"])


def test_check_of_a_state_that_cannot_be_read_says_that_it_does_not_know(room: Room) -> None:
    room.state.mkdir()
    (room.state / "state.db").write_bytes(b"no database" * 100)
    answer = room.reaper("check", str(room.folder / "reaper.toml"))

    assert answer.code == 0
    assert "put a policy back to observe is not known" in " ".join(answer.out.split())


def test_policy_that_was_edited_acts_and_nothing_is_said(blamed: Room) -> None:
    with blamed.store() as store:
        handled = {"digest": "what it was before", "attempts": ["a-77"], "untold": [], "lifted": False}
        store.set_facts({"work-lost-handled:exploration": json.dumps(handled)})

    told = blamed.reaper("plan", "--json").json

    assert len(told["actions"]) == 1
    assert told["notes"] == []


def test_configuration_that_only_observes_has_nothing_put_back(blamed: Room) -> None:
    blamed.configure(OBSERVING.replace('mode = "enforce"', 'mode = "observe"'))

    assert "put back" not in blamed.reaper("plan").out
