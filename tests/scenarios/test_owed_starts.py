"""A start that we owe: tried until it runs with its agent back, at a pace that fits what it meets, told when late, discharged once."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reaper.errors import CloudError, Denied, NoCapacity, QuotaReached, Throttled
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.decision import Action
from reaper.model.kinds.instance import Hindrance, InstanceState
from reaper.model.plan import Attempt, Outcome
from reaper.ports import Lease
from reaper.service import owed
from tests.scenarios.world import World, machine

CAPACITY = NoCapacity("start: InsufficientInstanceCapacity (no p3.2xlarge in eu-west-1a now)", "InsufficientInstanceCapacity")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One machine that we stopped an hour ago, whose agent reported before."""
    made = World(tmp_path)
    life = made.add("i-a")
    made.tick()
    now = made.clock.now()
    made.cloud.change(life.id, state=InstanceState.STOPPED, changed_at=now)
    after = made.cloud.machines[life.id]
    attempt = Attempt("a-stop", life.id, Action.STOP, "gpu-idle", "research", "idle", now, before=machine("i-a"))
    lease = made.leader.renew()
    assert lease is not None
    made.store.begin_attempt(attempt, lease, now, line(attempt), lambda _: None)
    made.store.end_attempt(replace(attempt, outcome=Outcome.DONE, outcome_at=now, after=after), line(attempt))
    made.clock.advance(timedelta(hours=1))
    life.agent = False
    made.tick()
    return made


def line(attempt: Attempt) -> AuditEntry:
    return AuditEntry(attempt.intent_at, AuditKind.INTENT, "reaper", "test", attempt.resource, attempt.action.value, attempt.id)


def lease_of(world: World) -> Lease:
    lease = world.leader.renew()
    assert lease is not None
    return lease


def undo(world: World) -> Attempt:
    attempt = world.store.attempt("a-stop")
    assert attempt is not None
    return world.cycle.executor.start_again(attempt, world.cycle.gather(world.config), lease_of(world), 1, "ada")


def agent_back(world: World, **changes: object) -> None:
    life = world.lives["i-a"]
    life.agent, life.boot, life.booted_at, life.changes = True, life.boot + 1, world.clock.now(), dict(changes)


def owes(world: World) -> list[owed.Owed]:
    return list(owed.read(world.store).values())


def told(world: World, event: str) -> list[str]:
    return [message.because for message in world.channel.messages if message.event == event and message.action == "start"]


def starts(world: World) -> int:
    return len(world.cloud.verbs("start"))


def test_a_start_is_discharged_when_its_agent_is_back_with_every_gpu_and_not_before(world: World) -> None:
    undo(world)
    world.run(3)
    before = owes(world)
    agent_back(world)
    world.run(3)

    assert len(before) == 1
    assert owes(world) == []
    assert starts(world) == 1


def test_an_agent_that_misses_a_gpu_is_not_back(world: World) -> None:
    life = world.lives["i-a"]
    world.cloud.change(life.id, gpus=2)
    world.tick()
    world.cloud.change(life.id, gpus=2)
    stop = world.store.attempt("a-stop")
    assert stop is not None
    undo(world)
    agent_back(world)  # one GPU where there should be two
    world.run(20)

    assert len(owes(world)) == 1
    assert told(world, "late")


@pytest.mark.parametrize(("error", "minutes"), [(CAPACITY, (1, 2, 4, 8)), (Throttled("start", "RequestLimitExceeded"), (1, 2, 4, 8)), (QuotaReached("start", "VcpuLimitExceeded"), (10, 20))])
def test_what_was_met_sets_the_pace(world: World, error: CloudError, minutes: tuple[int, ...]) -> None:
    world.cloud.fail("start", error, times=99)
    undo(world)
    at: list[int] = []
    passed, seen = 0, starts(world)
    while len(at) < len(minutes):
        world.tick()
        passed += 1
        assert passed < 60
        if starts(world) > seen:
            at.append(passed)
            seen = starts(world)

    gaps = [b - a for a, b in zip([0, *at], at, strict=False)]
    assert all(expected <= gap <= expected + 2 for gap, expected in zip(gaps, minutes, strict=True)), gaps


def test_capacity_that_comes_back_starts_it_and_nobody_is_told_that_it_failed(world: World) -> None:
    world.cloud.fail("start", CAPACITY, times=2)
    undo(world)
    agent_back(world)
    world.run(8)

    assert world.state_of("i-a") is InstanceState.RUNNING
    assert owes(world) == []
    assert told(world, "failed") == []


def test_a_start_that_bounces_is_no_start_and_is_tried_again_as_ours(world: World) -> None:
    id = world.lives["i-a"].id
    world.cloud.reads_in_transition = 0
    world.cloud.bounces[id] = [(Hindrance.KEY, "Client.InternalError")]
    first = undo(world)
    world.run(2)
    bounced = next(a for a in world.store.attempts() if a.id == first.id)
    agent_back(world)
    world.run(14)

    assert bounced.outcome is Outcome.FAILED
    assert bounced.hindrance is Hindrance.KEY
    assert "Client.InternalError" in (bounced.detail or "")
    assert starts(world) == 2
    assert world.state_of("i-a") is InstanceState.RUNNING
    assert owes(world) == []


def test_what_is_owed_survives_a_crash_and_is_mirrored_as_a_tag(world: World) -> None:
    id = world.lives["i-a"].id
    world.cloud.fail("start", CAPACITY, times=2)
    undo(world)
    world.tick()
    tagged = dict(world.cloud.machines[id].tags)
    world.restart()
    agent_back(world)
    world.run(8)

    assert "idle-reaper:owed-start" in tagged
    assert world.state_of("i-a") is InstanceState.RUNNING
    assert "idle-reaper:owed-start" not in world.cloud.machines[id].tags


def test_late_is_told_once_with_what_it_met_and_giving_up_when_the_window_ends(world: World) -> None:
    world.cloud.fail("start", CAPACITY, times=999)
    undo(world)
    world.run(40)
    late = told(world, "late")
    for _ in range(26):
        world.clock.advance(timedelta(hours=1) - timedelta(minutes=1))
        world.tick()

    assert len(late) == 1
    assert "no p3.2xlarge in eu-west-1a" in late[0]
    assert len(told(world, "late")) == 1
    assert len(told(world, "failed")) == 1
    assert owes(world) == []


def test_a_refusal_that_time_does_not_heal_is_told_at_once_and_not_repeated(world: World) -> None:
    world.cloud.fail("start", Denied("start: UnauthorizedOperation", "UnauthorizedOperation"), times=9)
    undo(world)
    world.run(5)

    assert starts(world) == 1
    assert "UnauthorizedOperation" in told(world, "failed")[0]
    assert owes(world) == []


def test_whoever_touches_it_meanwhile_ends_what_is_owed(world: World) -> None:
    world.cloud.fail("start", CAPACITY, times=1)
    undo(world)
    world.cloud.change(world.lives["i-a"].id, type="p3.8xlarge")
    world.run(5)

    assert starts(world) == 1
    assert "type was changed" in told(world, "failed")[0]
    assert owes(world) == []


def test_it_is_discharged_once_whoever_stops_it_afterwards(world: World) -> None:
    undo(world)
    agent_back(world)
    world.run(3)
    world.cloud.change(world.lives["i-a"].id, state=InstanceState.STOPPED)
    world.run(5)

    assert starts(world) == 1
    assert world.state_of("i-a") is InstanceState.STOPPED
