"""A stop of ours that interrupted work: the next boot tells, people are alarmed, and that policy stops nothing more."""

from dataclasses import replace
from datetime import timedelta

import pytest

from agent import report as wire
from reaper.model.audit import AuditEntry, AuditKind
from reaper.model.kinds.instance import InstanceState
from reaper.model.policy import Mode, Selector
from reaper.model.resource import ResourceId
from reaper.ports import Token
from reaper.service.ingest import Ingest
from tests.scenarios.world import ACCOUNT, REGION, Life, World, configuration, policy

ID = ResourceId("aws", ACCOUNT, REGION, "instance", "i-it")
LOST = "1 of 1 GPUs computed, GPU-i-it-0 at 93%"


def stop(world: World) -> None:
    world.add("i-it")
    world.run(60, lambda: world.stopped("i-it"))
    assert world.stopped("i-it")


def wake(world: World, life: Life, peak: float | None = 0.93, lost: str | None = None, shared: bool = False) -> None:
    """Somebody starts it some time later; its agent's first report comes in at the door."""
    world.run(10)
    life.boot, life.booted_at = life.boot + 1, world.clock.now() - timedelta(minutes=1)
    world.cloud.change(life.id, state=InstanceState.RUNNING, launched_at=world.clock.now() - timedelta(minutes=2))
    up_s = 90.0
    seen = wire.Report(
        resource=str(life.id), boot_id=f"{life.id.native}-{life.boot}", up_s=up_s, seq=round(up_s * 1000), window_s=60.0, age_s=0.0,
        sampler=wire.Sampler("ok"), lost=wire.Lost(lost or f"{life.id.native}-{life.boot - 1}", LOST, peak),
    )  # fmt: skip
    door = Ingest(world.store, world.watch, world.board, world.clock)
    door.accept(wire.encode(seen), Token("t", bytes(32), world.clock.now(), None if shared else life.id))
    life.booted_at = world.clock.now() - timedelta(hours=1, seconds=-90)  # its lives' clocks begin an hour ahead


def losses(world: World) -> list[AuditEntry]:
    return [one for one in world.store.audit() if one.kind is AuditKind.LOST]


def modes(world: World) -> set[str]:
    return {withheld.by for withheld in world.results[-1].plan.withheld}


def test_next_boot_tells_people_are_alarmed_and_the_policy_goes_back_to_observe(world: World) -> None:
    stop(world)
    wake(world, world.lives["i-it"])
    world.tick()
    alarms = world.channel.told("work-lost")
    world.add("i-sibling")
    world.run(90)

    assert [(m.resource, m.owner, m.policy) for m in alarms] == [(ID, "ada", "research")]
    assert LOST in alarms[0].because
    assert len(world.channel.told("work-lost")) == 1
    assert [one.attempt for one in losses(world)] == [a.id for a in world.store.attempts()]
    assert not world.stopped("i-sibling")
    assert modes(world) == {"mode"}
    assert any("put back to observe" in note for note in world.results[-1].plan.notes)
    assert sum(len(result.lost) for result in world.results) == 1


def test_other_policies_go_on(world: World) -> None:
    other = policy(name="others", when=Selector(tags={"team": ("web",)}), digest="d2")
    world.config = configuration(policy(), other, scope=replace(configuration().scope, what=Selector()))
    stop(world)
    wake(world, world.lives["i-it"])
    world.add("i-other", tags={"team": "web"})
    world.run(60, lambda: world.stopped("i-other"))

    assert world.stopped("i-other")


def test_edit_of_the_policy_lets_it_act_again_after_a_new_warning(world: World) -> None:
    stop(world)
    wake(world, world.lives["i-it"])
    world.add("i-sibling")
    world.run(60)
    warned = len(world.channel.told("warned"))
    world.config = configuration(policy(digest="d2"))
    world.run(60, lambda: world.stopped("i-sibling"))

    assert world.stopped("i-sibling")
    assert len(world.channel.told("warned")) > warned
    assert len(losses(world)) == 2  # the loss, and that it was lifted


def test_restart_of_the_daemon_forgets_nothing(world: World) -> None:
    stop(world)
    wake(world, world.lives["i-it"])
    world.tick()
    world.restart()
    world.add("i-sibling")
    world.run(60)

    assert not world.stopped("i-sibling")
    assert len(world.channel.told("work-lost")) == 1


def test_loss_that_comes_in_between_plan_and_call_stops_the_call(world: World) -> None:
    stop(world)
    sibling = world.add("i-sibling")
    woken: list[bool] = []

    def before(method: str, resource: ResourceId | None) -> None:
        if method == "get" and resource == sibling.id and not woken:
            woken.append(True)
            life = world.lives["i-it"]
            seen = wire.Report(
                str(life.id), "i-it-2", 90.0, 90000, 60.0, 0.0, wire.Sampler("ok"), lost=wire.Lost("i-it-1", LOST, 0.93)
            )
            door = Ingest(world.store, world.watch, world.board, world.clock)
            door.accept(wire.encode(seen), Token("t", bytes(32), world.clock.now(), life.id))

    world.cloud.before = before
    world.run(90)

    assert woken
    assert not world.stopped("i-sibling")
    assert any(e.kind is AuditKind.WITHHELD and "put back to observe" in e.because for e in world.store.audit(resource=sibling.id))


@pytest.mark.parametrize(
    ("peak", "lost"),
    [(0.04, None), (0.93, "another-boot")],
    ids=["what the policy calls idle", "a boot that was not the last"],
)
def test_what_was_no_work_of_that_boot_raises_no_alarm(world: World, peak: float, lost: str | None) -> None:
    stop(world)
    wake(world, world.lives["i-it"], peak, lost)
    world.run(5)

    assert losses(world) == []
    assert world.channel.told("work-lost") == []


def test_stop_by_its_owner_is_not_ours(world: World) -> None:
    """We stopped it, somebody started it and stopped it himself while it worked."""
    stop(world)
    life = world.lives["i-it"]
    world.run(60)
    life.boot, life.booted_at = 2, world.clock.now()
    world.cloud.change(ID, state=InstanceState.RUNNING, launched_at=world.clock.now())
    life.load = 0.9
    door = Ingest(world.store, world.watch, world.board, world.clock)
    first = wire.Report(str(ID), "i-it-2", 90.0, 90000, 60.0, 0.0, wire.Sampler("ok"))
    door.accept(wire.encode(first), Token("t", bytes(32), world.clock.now(), ID))
    world.run(30)
    world.cloud.change(ID, state=InstanceState.STOPPED)
    wake(world, life)
    world.run(5)

    assert losses(world) == []


def test_unverified_voice_can_make_less_be_stopped_and_nothing_else(world: World) -> None:
    """A shared token that knows the boot's id: it blames the stop once, and its word starts and stops no machine."""
    stop(world)
    wake(world, world.lives["i-it"], shared=True)
    world.cloud.change(ID, state=InstanceState.STOPPED)
    verbs = world.cloud.verbs()
    world.run(5)

    assert [one.evidence["told by"] for one in losses(world)] == ["an unverified voice"]
    assert world.cloud.verbs() == verbs


def test_observing_reaper_still_tells(world: World) -> None:
    stop(world)
    world.config = configuration(mode=Mode.OBSERVE)
    wake(world, world.lives["i-it"])
    world.tick()

    assert len(world.channel.told("work-lost")) == 1
