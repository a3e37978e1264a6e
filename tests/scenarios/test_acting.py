"""The moment of acting: every gate asked right before the call, and nothing lost when the call or the process breaks."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from reaper.errors import (
    AnswerLost,
    Denied,
    LeaseLost,
    NoCapacity,
    NotFound,
    Protected,
    Throttled,
    Unreachable,
    Unsupported,
)
from reaper.model.kinds.instance import InstanceState
from reaper.model.mark import Stage
from reaper.model.policy import BreakerTerms, Budgets, CountBudget, Mode, Scope, Selector
from reaper.model.resource import Place, ResourceId
from reaper.service.brakes import NAME as BRAKE
from reaper.service.snooze import snooze
from tests.scenarios.world import ACCOUNT, REGION, World, configuration

ID = ResourceId("aws", ACCOUNT, REGION, "instance", "i-it")


class Crash(BaseException):
    """The process dies here."""


def due(world: World) -> bool:
    mark = world.mark("i-it")
    return mark is not None and mark.stage is Stage.DUE


def at_the_last_moment(world: World, change: Callable[[World], None]) -> None:
    """Run until due, then let ``change`` happen between the cycle's plan and the executor's fresh read."""
    world.add("i-it")
    world.run(60, lambda: due(world))
    done: list[bool] = []

    def before(method: str, resource: ResourceId | None) -> None:
        if method == "get" and not done:
            done.append(True)
            change(world)

    world.cloud.before = before
    world.run(3)
    assert done, "the executor never read the machine afresh: the test shows nothing"


LAST_MOMENT: list[tuple[str, Callable[[World], None]]] = [
    ("it was stopped by its owner", lambda w: w.cloud.change(ID, state=InstanceState.STOPPED)),
    ("it was tagged for another reaper", lambda w: w.cloud.change(ID, tags={"team": "ml", "reaper": "other"})),
    ("it was tagged to be kept", lambda w: w.cloud.change(ID, tags={"team": "ml", "reaper-keep-until": "2026-12-24"})),
    ("it left the scope", lambda w: w.cloud.change(ID, tags={})),
    ("stop protection was switched on", lambda w: w.cloud.stop_protected.update({ID: True})),
    ("stop protection became unreadable", lambda w: w.cloud.stop_protected.update({ID: None})),
    ("it was resized", lambda w: w.cloud.change(ID, gpus=8, type="p3.16xlarge")),
    ("it joined a group", lambda w: w.cloud.change(ID, managed_by="auto scaling group a")),
    ("it was started anew", lambda w: w.cloud.change(ID, launched_at=w.clock.now())),
    ("somebody snoozed it", lambda w: snooze_it(w)),
    ("a job began and was reported", lambda w: begin_job(w)),
    ("our clock is off the cloud's", lambda w: setattr(w.cloud, "off_by", timedelta(minutes=2))),
    ("our clock is off the database's", lambda w: setattr(w.store, "skew", lambda now: timedelta(seconds=-31))),
    ("an older database took the place of ours", lambda w: setattr(w.store, "_known_seq", 10**9)),
    ("the cloud's time is not known", lambda w: setattr(w.cloud, "off_by", None)),
    ("the kill switch was pulled", lambda w: (w.state / BRAKE).write_text("incident 12") and None),
]  # fmt: skip


def snooze_it(world: World) -> None:
    now = world.clock.now()
    snooze(world.store, ID, now + timedelta(hours=2), "ada", "tuning", timedelta(days=5), now)


def begin_job(world: World) -> None:
    life = world.lives["i-it"]
    life.load = 0.9
    world.clock.advance(timedelta(seconds=3))
    world.report(life, timedelta(seconds=3))


@pytest.mark.parametrize("change", [row[1] for row in LAST_MOMENT], ids=[row[0] for row in LAST_MOMENT])
def test_change_between_plan_and_call_saves_the_machine(world: World, change: Callable[[World], None]) -> None:
    at_the_last_moment(world, change)

    assert world.cloud.verbs() == []
    assert "intent" not in world.story("i-it") or "abandoned" in outcomes(world)


def outcomes(world: World) -> list[str]:
    return [str(a.outcome) for a in world.store.attempts()]


def test_kill_switch_stops_everything_and_its_reason_is_told(world: World) -> None:
    (world.state / BRAKE).write_text("incident 12\n")
    world.add("i-it")

    world.run(60)

    assert world.cloud.verbs() == []
    assert "incident 12" in world.results[-1].plan.withheld[0].because


def test_kill_switch_let_go_lets_the_due_machine_be_stopped(world: World) -> None:
    switch = world.state / BRAKE
    switch.write_text("")
    world.add("i-it")
    world.run(60)

    switch.unlink()
    world.run(5)

    assert world.stopped("i-it")


def test_verb_that_the_scope_does_not_name_is_withheld(world: World) -> None:
    world.config = configuration(scope=Scope(Selector(tags={"team": ("ml",)}), ("start",), given=True))
    world.add("i-it")

    world.run(60)

    assert world.cloud.verbs() == []
    assert world.results[-1].plan.withheld[0].by == "scope"


def test_lease_lost_between_plan_and_intent_stops_the_call(world: World) -> None:
    def rob(w: World) -> None:
        w.clock.advance(timedelta(minutes=4))
        assert w.store.acquire_lease("thief", w.clock.now(), timedelta(minutes=3)) is not None

    at_the_last_moment(world, rob)

    assert world.cloud.verbs() == []


def test_slow_fresh_read_begins_again_from_the_top(world: World) -> None:
    world.add("i-it")
    world.run(60, lambda: due(world))
    slow: list[bool] = []

    def before(method: str, resource: ResourceId | None) -> None:
        if method == "get" and len(slow) < 2:
            slow.append(True)
            if len(slow) == 2:
                world.clock.advance(timedelta(seconds=11))

    world.cloud.before = before
    world.tick()

    assert world.cloud.verbs() == []


@pytest.mark.parametrize("error", [Throttled("slow down", "RequestLimitExceeded"), Denied("no", "UnauthorizedOperation"), Unreachable("no route")])
def test_unreadable_fresh_read_withdraws_the_action(world: World, error: Exception) -> None:
    world.add("i-it")
    world.run(60, lambda: due(world))
    world.cloud.fail("get", error, times=1)  # type: ignore[arg-type]

    world.tick()

    assert world.cloud.verbs() == []


REFUSALS = [
    Protected("stop protection", "OperationNotPermitted"), Unsupported("one-time spot", "UnsupportedOperation"),
    Denied("no", "UnauthorizedOperation"), Throttled("slow", "RequestLimitExceeded"), NotFound("gone", "InvalidInstanceID.NotFound"),
    NoCapacity("none", "InsufficientInstanceCapacity"),
]  # fmt: skip


@pytest.mark.parametrize("error", REFUSALS, ids=lambda e: type(e).__name__)
def test_refused_call_is_recorded_and_not_stormed(world: World, error: Exception) -> None:
    world.add("i-it")
    world.cloud.fail("stop", error, times=100)  # type: ignore[arg-type]

    world.run(60)

    assert 1 <= len(world.cloud.verbs()) <= 3
    assert set(outcomes(world)) == {"refused"}
    assert not world.stopped("i-it")


def test_lost_answer_is_settled_by_reading_and_never_called_twice(world: World) -> None:
    world.add("i-it")
    world.cloud.lose_answer("stop", AnswerLost("read timed out"))

    world.run(60)

    assert len(world.cloud.verbs()) == 1
    assert outcomes(world) == ["done"]


def test_lost_answer_of_a_call_that_had_no_effect_ends_as_failed(world: World) -> None:
    world.add("i-it")
    world.cloud.fail("stop", AnswerLost("connection reset"), times=1)

    world.run(48)

    assert outcomes(world)[-1] == "failed"


def test_a_stop_that_never_left_us_is_refused_so_that_its_owners_own_stop_is_not_taken_for_ours(world: World) -> None:
    life = world.add("i-it")
    world.cloud.fail("stop", Unreachable("stop: no connection"))
    world.run(60, lambda: bool(world.cloud.verbs()))
    world.cloud.change(life.id, state=InstanceState.STOPPED, changed_at=world.clock.now() + timedelta(seconds=20))
    world.run(8)

    assert outcomes(world) == ["refused"]


@pytest.mark.parametrize(("late", "outcome"), [(30, "done"), (240, "failed")], ids=["within seconds", "minutes later"])
def test_a_stop_that_shows_minutes_after_a_lost_answer_is_not_taken_for_ours(world: World, late: int, outcome: str) -> None:
    """Nobody knows whether our call arrived; a machine that its owner stopped is not started by us in the morning."""
    life = world.add("i-it")
    world.cloud.fail("stop", AnswerLost("connection reset"))
    world.run(60, lambda: bool(world.cloud.verbs()))
    world.clock.advance(timedelta(minutes=10))
    world.cloud.change(life.id, state=InstanceState.STOPPED, changed_at=world.store.attempts()[0].intent_at + timedelta(seconds=late))
    world.restart()
    world.run(1)

    assert outcomes(world) == [outcome]


def test_a_slow_stop_that_the_cloud_accepted_is_ours_whenever_it_shows(world: World) -> None:
    life = world.add("i-it")
    world.cloud.reads_in_transition = 1000
    world.run(60, lambda: bool(world.cloud.verbs()))
    world.run(6)
    world.cloud.change(life.id, state=InstanceState.STOPPED, changed_at=world.clock.now())
    world.restart()
    world.run(4)

    assert outcomes(world) == ["done"]


def test_slow_stop_stays_open_until_the_machine_is_stopped(world: World) -> None:
    world.add("i-it")
    world.cloud.reads_in_transition = 4

    world.run(60, lambda: bool(world.cloud.verbs()))
    at_first = outcomes(world)
    world.run(6)

    assert at_first == ["None"]
    assert outcomes(world) == ["done"]
    assert len(world.cloud.verbs()) == 1


def test_machine_stuck_in_stopping_is_reported_as_failed(world: World) -> None:
    world.add("i-it")
    world.cloud.reads_in_transition = 1000

    world.run(90)

    assert outcomes(world) == ["failed"]
    assert len(world.cloud.verbs()) == 1


@pytest.mark.parametrize("moment", ["before the call reached the cloud", "after the cloud took it"])
def test_crash_around_the_call_is_reconciled_by_reading(world: World, moment: str) -> None:
    world.add("i-it")
    stop = world.cloud.stop

    def dying(resource: ResourceId) -> None:
        if moment.startswith("after"):
            stop(resource)
        raise Crash

    world.cloud.stop = dying  # type: ignore[method-assign]
    with pytest.raises(Crash):
        world.run(60)
    assert outcomes(world) == ["None"]

    world.cloud.stop = stop  # type: ignore[method-assign]
    world.restart()
    world.clock.advance(timedelta(minutes=4))  # the dead process's lease runs out
    world.run(30)

    assert "None" not in outcomes(world)
    assert len(world.cloud.verbs()) == (1 if moment.startswith("after") else 0)
    assert outcomes(world)[-1] == ("done" if moment.startswith("after") else "failed")


def test_dead_leader_that_comes_back_cannot_act(world: World) -> None:
    from reaper.service.lead import Leader

    world.add("i-it")
    world.run(60, lambda: due(world))
    old = world.leader.renew()
    world.clock.advance(timedelta(minutes=4))
    other = Leader(world.store, world.clock, timedelta(minutes=3))
    assert other.renew() is not None
    world.report(world.lives["i-it"])

    assert old is not None
    with pytest.raises(LeaseLost):
        world.cycle.run(world.config, old)

    assert world.cloud.verbs() == []


def test_hour_budget_binds_and_the_rest_follows_later(world: World) -> None:
    world.config = configuration(budgets=Budgets(stops=CountBudget(per_hour=2), breaker=None))
    for i in range(5):
        world.add(f"i-{i}")

    world.run(60)
    first = len(world.cloud.verbs())
    held = {w.by for w in world.results[-1].plan.withheld}
    world.run(60)

    assert (first, held) == (2, {"budget"})
    assert len(world.cloud.verbs()) == 4


def test_gang_is_not_split_by_a_budget(world: World) -> None:
    world.config = configuration(budgets=Budgets(stops=CountBudget(per_hour=3), breaker=None))
    for i in range(2):
        world.add(f"i-{i}", tags={"team": "ml", "job-group": "a"})
    for i in range(2, 4):
        world.add(f"i-{i}", tags={"team": "ml", "job-group": "b"})

    world.run(60)

    stopped = [world.stopped(f"i-{i}") for i in range(4)]
    assert sorted((stopped[:2], stopped[2:])) == [[False, False], [True, True]]


def test_gang_larger_than_its_budget_goes_whole_when_that_is_unused(world: World) -> None:
    world.config = configuration(budgets=Budgets(stops=CountBudget(per_hour=2), breaker=None))
    for i in range(3):
        world.add(f"i-{i}", tags={"team": "ml", "job-group": "a"})

    world.run(60)

    assert all(world.stopped(f"i-{i}") for i in range(3))


def test_gang_is_called_off_whole_when_one_member_wakes_at_the_last_moment(world: World) -> None:
    for i in range(3):
        world.add(f"i-{i}", tags={"team": "ml", "job-group": "a"})
    world.run(60, lambda: all((m := world.mark(f"i-{i}")) is not None and m.stage is Stage.DUE for i in range(3)))
    woken: list[bool] = []

    def before(method: str, resource: ResourceId | None) -> None:
        if method == "get" and not woken:
            woken.append(True)
            life = world.lives["i-2"]
            life.load = 0.9
            world.clock.advance(timedelta(seconds=3))
            world.report(life, timedelta(seconds=3))

    world.cloud.before = before
    world.run(4)

    assert woken
    assert world.cloud.verbs() == []


def test_mass_idle_jump_opens_the_breaker_and_nothing_is_stopped_meanwhile(world: World) -> None:
    world.config = configuration(budgets=Budgets(stops=CountBudget(), breaker=BreakerTerms(0.25, timedelta(minutes=15), 3)))
    lives = [world.add(f"i-{i}") for i in range(6)]
    for life in lives:
        life.load = 0.9
    world.run(5)

    for life in lives[:4]:
        life.load = 0.0
    world.run(60)

    assert world.cloud.verbs() == []
    assert world.results[-1].jumps
    assert {w.by for w in world.results[-1].plan.withheld} == {"breaker"}
    assert "breaker" in [entry.kind.value for entry in world.store.audit()]


def test_failed_region_holds_its_machines_and_no_other(world: World) -> None:
    world.add("i-it")
    other = world.add("i-far", id=ResourceId("aws", ACCOUNT, "us-east-1", "instance", "i-far"))
    world.run(35)
    world.cloud.failed_places[Place("aws", ACCOUNT, REGION)] = "throttled"

    world.run(30)

    assert world.cloud.verbs() == [("stop", other.id)]
    assert "throttled" in world.why("i-it")


def test_listing_that_fails_whole_changes_nothing(world: World) -> None:
    world.add("i-it")
    world.run(35)
    world.cloud.fail("list", Throttled("slow", "RequestLimitExceeded"), times=100)

    world.run(30)

    assert world.cloud.verbs() == []
    assert world.results[-1].inventory.problems


def test_machine_that_vanished_from_a_good_listing_loses_its_mark(world: World) -> None:
    world.add("i-it")
    world.add("i-other").load = 0.9
    world.run(35)

    del world.cloud.machines[ID]
    world.run(2)

    assert world.store.marks() == {}


def test_nothing_is_ever_stopped_twice(world: World) -> None:
    world.add("i-it")

    world.run(150)

    assert len(world.cloud.verbs()) == 1


def test_process_whose_ceiling_is_observe_has_no_object_that_can_act(world: World) -> None:
    from reaper.clouds.readonly import ReadOnlyCloud
    from reaper.errors import ReadOnly

    guarded = ReadOnlyCloud(world.cloud)
    world.add("i-it")

    for verb in (guarded.stop, guarded.start):
        with pytest.raises(ReadOnly):
            verb(ID)
    assert world.cloud.verbs() == []


# --- undo ---------------------------------------------------------------------------------------------------------------


def stopped_attempt(world: World) -> str:
    world.add("i-it")
    world.run(60, lambda: world.stopped("i-it"))
    world.run(2)
    return world.store.attempts()[0].id


def undo(world: World, attempt_id: str) -> object:
    attempt = world.store.attempt(attempt_id)
    lease = world.leader.renew()
    assert attempt is not None
    assert lease is not None
    return world.cycle.executor.start_again(attempt, world.cycle.gather(world.config), lease, 1, "ada")


def test_undo_starts_what_we_stopped_and_records_who(world: World) -> None:
    attempt = stopped_attempt(world)

    undo(world, attempt)

    assert world.state_of("i-it") is InstanceState.RUNNING
    assert world.store.attempts()[0].actor == "ada"


TOUCHED = [
    ("another type", {"type": "p3.8xlarge"}), ("other disks", {"volumes": ("vol-x",)}), ("other interfaces", {"interfaces": ()}),
    ("other tags", {"tags": {"team": "ml", "new": "1"}}), ("terminated", {"state": InstanceState.TERMINATED}),
    ("already running", {"state": InstanceState.RUNNING}),
]  # fmt: skip


@pytest.mark.parametrize("fields", [row[1] for row in TOUCHED], ids=[row[0] for row in TOUCHED])
def test_undo_leaves_alone_what_somebody_touched_since(world: World, fields: dict[str, object]) -> None:
    from reaper.service.execute import Withdrawn

    attempt = stopped_attempt(world)
    world.cloud.change(ID, **fields)

    with pytest.raises(Withdrawn):
        undo(world, attempt)

    assert world.cloud.verbs("start") == []


def test_undo_in_observe_is_refused(world: World) -> None:
    from reaper.service.execute import Withdrawn

    attempt = stopped_attempt(world)
    world.config = replace(world.config, mode=Mode.OBSERVE)

    with pytest.raises(Withdrawn, match="observe"):
        undo(world, attempt)


def test_restarted_machine_has_its_whole_term_and_warning_again(world: World) -> None:
    attempt = stopped_attempt(world)
    undo(world, attempt)
    life = world.lives["i-it"]
    life.boot, life.booted_at = 2, world.clock.now()

    minutes = world.run(90, lambda: world.stopped("i-it"))

    assert minutes >= 40
    assert outcomes(world).count("done") >= 2
