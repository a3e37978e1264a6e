"""Two doors and two deciders as processes over one PostgreSQL; leaders that are killed, suspended and revived; a database that stops."""

import os
import signal

import pytest

from reaper.model.mark import Stage
from reaper.model.plan import Outcome
from reaper.store import open_store
from tests import postgres
from tests.roles.conftest import Calls, Fleet, post

pytestmark = pytest.mark.story


def started(fleet: Fleet) -> None:
    for name in ("door-1", "door-2"):
        fleet.start_door(name)
    for name in ("decider-1", "decider-2"):
        fleet.start_decider(name)


def stage(fleet: Fleet, name: str) -> Stage | None:
    return next((mark.stage for (resource, _), mark in fleet.store.marks().items() if resource == fleet.lives[name].id), None)


def test_reports_reach_the_leader_through_every_door_and_a_killed_leader_is_followed(fleet: Fleet) -> None:
    first, second = fleet.launch("first"), fleet.launch("second", load=0.9)
    started(fleet)
    for door in fleet.doors.values():
        assert door.get("/readyz") == (200, "ready\n")
    for decider in fleet.deciders.values():
        decider.eventually("/readyz", lambda status, _: status == 200)
    fleet.report()

    fleet.eventually("the idle one is stopped", lambda: fleet.stops() == 1)
    fleet.eventually("and its attempt closed", lambda: "outcome" in fleet.kinds(first))
    kinds = fleet.kinds(first)
    assert kinds.index("warned") < kinds.index("intent")
    assert kinds.count("intent") == 1
    assert "nominated" not in fleet.kinds(second)
    assert set(first.last) == set(second.last) == {"door-1", "door-2"}
    assert fleet.store.voice(first.id).conflict_at is None  # type: ignore[union-attr]

    before = fleet.store.held_lease()
    killed = fleet.leader()
    fleet.deciders[killed].started.kill()
    fleet.deciders[killed].started.wait()
    del fleet.deciders[killed]
    second.load = 0.0
    fleet.eventually("the other leads and stops what became idle", lambda: fleet.stops() == 2)

    after = fleet.store.held_lease()
    assert before is not None
    assert after is not None
    assert (after.epoch, after.holder != before.holder) == (before.epoch + 1, True)
    assert {attempt.holder for attempt in fleet.store.attempts()} == {before.holder, after.holder}
    begun = [attempt for attempt in fleet.store.attempts() if attempt.outcome is not Outcome.ABANDONED]  # a slow machine looks again from the top
    assert len(begun) == 2
    assert first.refused == second.refused == []


def test_a_leader_that_was_suspended_on_its_way_to_a_stop_does_nothing_once_it_is_revived(fleet: Fleet) -> None:
    life = fleet.launch("first")
    started(fleet)
    fleet.report()
    leads = fleet.leader()
    frozen = fleet.deciders[leads].started.pid
    fleet.eventually("people are warned", lambda: stage(fleet, "first") in (Stage.WARNED, Stage.DUE))
    calls = fleet.moto.calls
    assert isinstance(calls, Calls)
    suspended: list[int] = []

    def suspend() -> None:
        os.kill(frozen, signal.SIGSTOP)
        suspended.append(frozen)

    # The look at the machine's own protection comes right before the intent.
    fleet.eventually("the wait is over", lambda: stage(fleet, "first") is Stage.DUE or fleet.stops() > 0)
    calls.action, calls.at = "DescribeInstanceAttribute", suspend
    fleet.eventually("it is on its way", lambda: bool(suspended) or fleet.stops() > 0)
    assert fleet.stops() == 0, "it was quicker than this test"

    life.load = 0.9  # work begins while nobody looks
    fleet.expire_lease()
    other = fleet.leader()
    assert other != leads
    fleet.eventually("the new leader sees the work", lambda: "cleared" in fleet.kinds(life))
    after = fleet.store.held_lease()
    os.kill(frozen, signal.SIGCONT)
    fleet.deciders[leads].line("another reaper leads")

    assert fleet.stops() == 0
    assert fleet.store.attempts(open_only=True) == ()
    assert {attempt.outcome for attempt in fleet.store.attempts()} <= {"abandoned"}
    assert after is not None
    held = fleet.store.held_lease()
    assert held is not None
    assert (held.epoch, held.holder) == (after.epoch, after.holder)
    assert fleet.leader() == other


def test_a_decider_takes_no_reports_and_an_agent_keeps_its_own(fleet: Fleet) -> None:
    fleet.launch("first")
    decider = fleet.start_decider("decider-1")
    status, answer = post(decider, b"{}", "irt_whatever")

    assert status == 503
    assert "no-reports-here" in answer
    assert "role ingest" in answer
    assert decider.get("/healthz")[0] == 200
    assert decider.get("/metrics")[0] == 200


def test_processes_go_on_by_themselves_after_their_database_was_away(fleet: Fleet) -> None:
    with postgres.made() as own:
        postgres.with_template(own)
        fleet.store.close()
        fleet.url = own.url("migrated")
        fleet.store = open_store(fleet.url)
        life = fleet.launch("first", load=0.9)
        door, decider = fleet.start_door("door-1"), fleet.start_decider("decider-1")
        fleet.report()
        decider.eventually("/metrics", lambda _, text: "reaper_leader 1.0" in text)
        fleet.eventually("reports come in", lambda: bool(life.last))
        own.stop("immediate")
        life.load = 0.0

        assert "the store cannot be reached" in door.eventually("/readyz", lambda status, _: status == 503)
        assert "cannot be reached" in decider.line("cycle broke off")
        fleet.eventually("the door refuses what it cannot keep", lambda: any(status == 503 for status, _ in life.refused))
        assert fleet.stops() == 0
        own.start()

        door.eventually("/readyz", lambda status, _: status == 200)
        fleet.eventually("it goes on to the end", lambda: fleet.stops() == 1)
        fleet.eventually("and closes its attempt", lambda: "outcome" in fleet.kinds(life))
        assert (door.started.poll(), decider.started.poll()) == (None, None)
        fleet.over.set()
        fleet.ends.close()
        fleet.store.close()
