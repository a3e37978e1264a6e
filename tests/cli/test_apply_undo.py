"""`reaper apply` and `reaper undo`: the same gates, a person's hands."""

import io
import sys
from datetime import timedelta

import pytest

from reaper.errors import Protected
from reaper.model.kinds.instance import InstanceState
from reaper.service.undo import APPROVAL_PREFIX
from tests import builders as make
from tests.builders import MINUTE
from tests.cli.conftest import ENFORCING, OBSERVING, Room


def planned(room: Room) -> str:
    return str(room.reaper("plan", "--json").json["plan"])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_says_what_it_will_change_and_stops_what_is_due(room: Room) -> None:
    made = room.due()
    answer = room.reaper("apply", planned(room), "--yes")

    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].endswith("will change:")
    assert lines[1].startswith(f"  stop trainer ({made.id}): every GPU at or below 5%")
    assert f"stop trainer ({made.id}): done; stopped, read back from the cloud" in lines
    assert room.cloud.verbs() == [("stop", made.id)]
    with room.store() as store:
        assert [e.kind.value for e in store.audit(resource=made.id)] == ["intent", "accepted", "outcome"]
        assert store.marks() == {}
        assert store.held_lease() is None


def test_json_is_one_object_and_the_announcement_goes_to_stderr(room: Room) -> None:
    room.due()
    answer = room.reaper("apply", planned(room), "--yes", "--json")

    assert len(answer.out.splitlines()) == 1
    assert [(r["name"], r["outcome"]) for r in answer.json["results"]] == [("trainer", "done")]
    assert "will change:" in answer.err


def test_a_job_that_began_since_keeps_the_machine_up(room: Room) -> None:
    made = room.due()
    plan = planned(room)
    room.clock.advance(MINUTE)
    room.report(minutes=1, until=room.clock.now(), gpus=(make.gpu(peak=0.9),))
    answer = room.reaper("apply", plan, "--yes", "--json")

    assert answer.code == 4
    assert [(r["outcome"], r["attempt"]) for r in answer.json["results"]] == [("withdrawn", None)]
    assert room.cloud.verbs() == []
    assert room.cloud.machines[made.id].state is InstanceState.RUNNING


def test_a_machine_that_joined_the_job_since_the_plan_holds_it(room: Room) -> None:
    room.configure(ENFORCING + '\n[gang]\nsame = ["tag:job"]\n')
    room.machine(tags={"job": "a"})
    room.list_all()
    room.report()
    room.mark()
    plan = planned(room)
    room.machine("i-02", "newcomer", tags={"job": "a"})
    answer = room.reaper("apply", plan, "--yes")

    assert answer.code == 4
    assert "newcomer" in answer.out
    assert room.cloud.verbs() == []


def test_in_observe_it_is_refused_and_says_what_to_change(room: Room) -> None:
    room.due()
    plan = planned(room)
    room.configure(OBSERVING)
    answer = room.reaper("apply", plan, "--yes", "--json")

    assert answer.code == 4
    assert 'set mode = "enforce" in' in answer.json["error"]
    assert room.cloud.verbs() == []


def test_a_plan_with_nothing_in_it_is_nothing_to_do_and_shows_what_was_withheld(room: Room) -> None:
    room.configure(ENFORCING.replace("per_hour = 10", "per_hour = 0"))
    room.due()
    answer = room.reaper("apply", planned(room), "--yes")

    assert answer.code == 3
    assert "not stop trainer" in answer.out
    assert "withheld by budget" in answer.out


def test_an_unknown_plan_is_a_usage_error(room: Room) -> None:
    room.due()

    assert room.reaper("apply", "p-nothing", "--yes").code == 2


def test_without_a_terminal_nobody_can_confirm(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.due()
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    answer = room.reaper("apply", planned(room))

    assert answer.code == 2
    assert "say --yes" in answer.err
    assert room.cloud.verbs() == []


@pytest.mark.parametrize(("typed", "code", "stops"), [("y\n", 0, 1), ("\n", 4, 0), ("", 4, 0), ("no\n", 4, 0)])
def test_on_a_terminal_it_asks(room: Room, monkeypatch: pytest.MonkeyPatch, typed: str, code: int, stops: int) -> None:
    room.due()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    answer = room.reaper("apply", planned(room))

    assert answer.code == code
    assert "carry out 1 action? [y/N]" in answer.err
    assert len(room.cloud.verbs()) == stops


def test_with_another_reaper_leading_it_is_filed_and_not_done(room: Room) -> None:
    made = room.due()
    plan = planned(room)
    room.led_by_another()
    answer = room.reaper("apply", plan, "--yes", "--json")

    assert answer.code == 0
    assert room.cloud.verbs() == []
    with room.store() as store:
        (filed,) = store.approvals()
        assert [e.kind.value for e in store.audit()] == ["approved"]
    assert (filed.id, filed.plan, filed.resources) == (answer.json["filed"], plan, (made.id,))


def test_after_a_gap_without_cycles_people_are_warned_anew_first(room: Room) -> None:
    room.due()
    plan = planned(room)
    with room.store() as store:
        store.set_facts({"last_cycle_at": (room.clock.now() - timedelta(hours=3)).isoformat()})
    answer = room.reaper("apply", plan, "--yes")

    assert answer.code == 4
    assert "no cycle for 180 minutes" in answer.err
    assert room.cloud.verbs() == []


def test_the_kill_switch_binds_a_persons_hands_too(room: Room) -> None:
    room.due()
    plan = planned(room)
    (room.state / "STOP").write_text("hands off")
    answer = room.reaper("apply", plan, "--yes")

    assert answer.code == 4
    assert "hands off" in answer.out
    assert room.cloud.verbs() == []


def test_a_refusal_of_the_cloud_is_a_failure(room: Room) -> None:
    room.due()
    plan = planned(room)
    room.cloud.fail("stop", Protected("its owner protects it"))
    answer = room.reaper("apply", plan, "--yes")

    assert answer.code == 1
    assert "refused; its owner protects it" in answer.out


# --- undo -------------------------------------------------------------------------------------------------------------


def test_what_we_stopped_is_started_again(room: Room) -> None:
    attempt = room.stopped_by_us()
    answer = room.reaper("undo", attempt, "--yes")

    assert answer.code == 0
    assert answer.out.startswith(f"will start trainer ({make.resource()}), a g5.xlarge, stopped 2026-03-04 11:59 UTC because idle for 4h")
    assert "done; running, read back from the cloud" in answer.out
    assert room.cloud.verbs() == [("start", make.resource())]


def test_the_number_of_its_line_names_the_stop_as_well(room: Room) -> None:
    room.stopped_by_us()
    seq = room.reaper("audit", "--json").json["entries"][-1]["seq"]
    answer = room.reaper("undo", str(seq), "--yes", "--json")

    assert (answer.code, answer.json["outcome"]) == (0, "done")


def test_a_machine_somebody_touched_since_is_left_alone(room: Room) -> None:
    attempt = room.stopped_by_us()
    room.cloud.change(make.resource(), type="g5.2xlarge")
    answer = room.reaper("undo", attempt, "--yes", "--json")

    assert answer.code == 4
    assert answer.json["error"] == f"{make.resource()} is not started: its type was changed from g5.xlarge to g5.2xlarge"
    assert room.cloud.verbs() == []


def test_undo_in_observe_or_without_the_verb_is_refused(room: Room) -> None:
    attempt = room.stopped_by_us()
    room.configure(OBSERVING)
    observing = room.reaper("undo", attempt, "--yes")
    room.configure(ENFORCING.replace('"stop", "start"', '"stop"'))
    no_verb = room.reaper("undo", attempt, "--yes")

    assert (observing.code, no_verb.code) == (4, 4)
    assert "do not name start" in no_verb.err
    assert room.cloud.verbs() == []


def test_undo_is_filed_where_another_reaper_leads(room: Room) -> None:
    attempt = room.stopped_by_us()
    room.led_by_another()
    answer = room.reaper("undo", attempt, "--yes")

    assert answer.code == 0
    assert room.cloud.verbs() == []
    with room.store() as store:
        assert [a.plan for a in store.approvals()] == [f"{APPROVAL_PREFIX}{attempt}"]


@pytest.mark.parametrize("entry", ["a-nothing", "99", "what"])
def test_what_was_no_stop_cannot_be_undone(room: Room, entry: str) -> None:
    room.stopped_by_us()

    assert room.reaper("undo", entry, "--yes").code == 2


def test_undo_asks_too(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = room.stopped_by_us()
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    assert room.reaper("undo", attempt).code == 2
    assert room.cloud.verbs() == []
