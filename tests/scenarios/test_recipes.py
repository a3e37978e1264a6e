"""Actions of several steps: hibernate or stop, snapshot every disk after the stop, and end a machine only on its verified copies."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reaper.decide.breaker import Jump
from reaper.decide.undo import left_stopped
from reaper.errors import AnswerLost, CloudError, Denied, QuotaReached, TooSoon, Unreachable
from reaper.model.decision import Action
from reaper.model.kinds.instance import InstanceState, Protections
from reaper.model.kinds.snapshot import SnapshotState
from reaper.model.plan import Outcome
from reaper.model.policy import Budgets, CountBudget, IdleTerms, Mode, Scope, Selector, Warn
from reaper.model.resource import ResourceId
from tests.scenarios.world import World, configuration, policy

DISKS = ("vol-a", "vol-b", "vol-c")
VERBS = ("stop", "start", "snapshot", "terminate")


def world_of(folder: Path, action: str, **terms: object) -> World:
    """With terms as short as they go, so that a machine is stopped after a quarter of an hour."""
    scope = Scope(Selector(tags={"team": ("ml",)}), VERBS, given=True)
    idle = IdleTerms(timedelta(minutes=6), 0.05, timedelta(minutes=30))
    return World(folder, configuration(policy(action=action, idle=idle, warn=Warn(timedelta(minutes=5)), **terms), scope=scope))


def until_down(world: World, native: str = "i-a") -> None:
    assert world.run(40, until=lambda: not world.state_of(native).counts) < 40


def crash_before_the_stop(world: World) -> None:
    """The intent is written, and the call never leaves."""

    def crash(method: str, _: object) -> None:
        if method == "stop":
            raise KeyboardInterrupt

    world.cloud.before = crash
    with pytest.raises(KeyboardInterrupt):
        world.run(40)
    world.cloud.before = None


def attempt(world: World):
    (one,) = [a for a in world.store.attempts() if a.action.takes_away]
    return one


# --- hibernate ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("configured", "verb"), [(True, "hibernate"), (False, "stop"), (None, "stop")])
def test_what_was_launched_for_it_hibernates_and_the_rest_is_stopped_by_policy(tmp_path: Path, configured: bool | None, verb: str) -> None:
    world = world_of(tmp_path, "hibernate")
    world.add("i-a", hibernation=configured)

    until_down(world)
    world.run(2)

    assert [name for name, _ in world.cloud.verbs()] == [verb]
    assert attempt(world).outcome is Outcome.DONE


def test_a_policy_that_wants_nothing_else_holds_what_cannot_hibernate(tmp_path: Path) -> None:
    world = world_of(tmp_path, "hibernate", hibernate_else="hold")
    world.add("i-a", hibernation=False)

    world.run(22)

    assert world.cloud.verbs() == []
    assert world.why("i-a") == "it was not launched for hibernation"


def test_hibernating_and_stopping_share_one_budget(tmp_path: Path) -> None:
    world = world_of(tmp_path, "hibernate")
    world.config = replace(world.config, budgets=replace(world.config.budgets, stops=replace(world.config.budgets.stops, per_hour=1)))
    world.add("i-a", hibernation=True)
    world.add("i-b", hibernation=False)

    world.run(22)

    assert len(world.cloud.verbs()) == 1


def limited(world: World, **budgets: CountBudget) -> None:
    world.config = replace(world.config, budgets=replace(world.config.budgets, **budgets))


@pytest.mark.parametrize("action", ["stop-and-snapshot", "terminate"])
def test_snapshots_have_a_budget_of_their_own_beside_that_of_stops(tmp_path: Path, action: str) -> None:
    """A machine counts once, however many disks it has; what only stops is not bound by it."""
    world = world_of(tmp_path, action)
    limited(world, snapshots=CountBudget(per_day=1))
    world.add("i-a", volumes=DISKS)
    world.add("i-b", volumes=DISKS)
    open_protections(world)

    world.run(30)

    assert len({one.tags["idle-reaper:machine"] for one in world.cloud.snapshots_made}) == 1
    assert [name for name, _ in world.cloud.verbs()].count("stop") == 1
    assert any("budget of snapshots: per day: 1 of 1 used" in w.because for w in world.results[-1].plan.withheld)


def test_ends_have_a_budget_of_their_own_which_binds_nothing_else(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    limited(world, deletes=CountBudget(per_day=0))
    ends, stops = world.config.policies[0], policy(action="stop", idle=world.config.policies[0].idle, warn=world.config.policies[0].warn)
    world.config = replace(world.config, policies=(
        replace(ends, when=Selector(tags={"phase": ("scratch",)})), replace(stops, name="stops", when=Selector(tags={"phase": ("work",)})),
    ))  # fmt: skip
    world.add("i-a", tags={"team": "ml", "phase": "scratch"})
    world.add("i-b", tags={"team": "ml", "phase": "work"})
    open_protections(world)

    world.run(30)

    assert [(name, id.native) for name, id in world.cloud.verbs()] == [("stop", "i-b")]
    assert any("budget of deletes: per day: 0 of 0 used" in w.because for w in world.results[-1].plan.withheld)


def test_whoever_configures_nothing_ends_five_machines_a_day_at_most() -> None:
    assert Budgets().deletes == CountBudget(per_day=5)
    assert Budgets().snapshots == CountBudget(per_day=20)


# --- stop and snapshot ----------------------------------------------------------------------------------------------------


def test_every_disk_is_snapshotted_after_the_stop_and_the_attempt_is_done_when_all_are_complete(tmp_path: Path) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    world.cloud.snapshots_complete_after = 2
    world.add("i-a", volumes=DISKS)
    until_down(world)
    open_first = attempt(world).outcome
    world.run(6)

    assert open_first is None
    assert [name for name, _ in world.cloud.verbs()] == ["stop", "snapshot", "snapshot", "snapshot"]
    assert sorted(one.volume for one in world.cloud.snapshots_made) == list(DISKS)
    done = attempt(world)
    assert done.outcome is Outcome.DONE
    assert all(f"of {disk}" in (done.detail or "") for disk in DISKS)
    tags = world.cloud.snapshots_made[0].tags
    assert tags["idle-reaper:attempt"] == done.id
    assert tags["idle-reaper:machine"] == str(done.resource)
    assert tags["idle-reaper:disk"] == world.cloud.snapshots_made[0].volume


def test_a_snapshot_that_fails_is_made_again_and_the_others_are_not(tmp_path: Path) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    world.cloud.snapshots_fail = {"vol-b"}
    world.add("i-a", volumes=DISKS)

    until_down(world)
    world.run(5)

    assert sorted(one.volume for one in world.cloud.snapshots_made) == ["vol-a", "vol-b", "vol-b", "vol-c"]
    assert attempt(world).outcome is Outcome.DONE


def test_a_lost_answer_and_a_crash_make_no_second_snapshot(tmp_path: Path) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    world.add("i-a", volumes=DISKS)
    world.cloud.lose_answer("snapshot", AnswerLost("snapshot: read timed out"))

    until_down(world)
    world.restart()
    world.run(5)

    assert sorted(one.volume for one in world.cloud.snapshots_made) == list(DISKS)
    assert attempt(world).outcome is Outcome.DONE


@pytest.mark.parametrize("crash", [False, True], ids=["", "and we crash"])
@pytest.mark.parametrize("lost", [False, True], ids=["answered", "answer lost"])
def test_a_listing_that_lags_behind_makes_no_second_snapshot(tmp_path: Path, crash: bool, lost: bool) -> None:
    """What was just made is not always to be seen at once, and a second one would cost and stay."""
    world = world_of(tmp_path, "stop-and-snapshot")
    world.add("i-a", volumes=DISKS)
    real, hidden = world.cloud.snapshots, [True]
    world.cloud.snapshots = lambda *args: () if hidden[0] else real(*args)  # type: ignore[method-assign]
    if lost:
        world.cloud.lose_answer("snapshot", AnswerLost("snapshot: read timed out"))
    until_down(world)
    if crash:
        world.restart()
    world.run(1)
    hidden[0] = False
    world.run(5)

    assert sorted(one.volume for one in world.cloud.snapshots_made) == list(DISKS)
    assert attempt(world).outcome is Outcome.DONE


def test_a_snapshot_that_never_appears_is_asked_for_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    world.add("i-a", volumes=("vol-a",))
    real = world.cloud.snapshot

    def vanishes(*args: object) -> str:
        real(*args)  # type: ignore[arg-type]
        world.cloud.snapshots_made.clear()
        world.cloud.snapshot = real  # type: ignore[method-assign]
        return "snap-lost"

    world.cloud.snapshot = vanishes  # type: ignore[method-assign, assignment]
    until_down(world)
    world.run(6)

    assert [name for name, _ in world.cloud.verbs()] == ["stop", "snapshot", "snapshot"]
    assert attempt(world).outcome is Outcome.DONE


def test_what_a_stop_for_hibernation_came_to_is_told(tmp_path: Path) -> None:
    """EC2 stops a machine whose memory it could not keep, and its state reason alone says so."""
    world = world_of(tmp_path, "hibernate")
    life = world.add("i-a", hibernation=True)
    real = world.cloud.hibernate

    def hibernate(resource: object) -> None:
        real(resource)  # type: ignore[arg-type]
        world.cloud.change(life.id, state_reason="Server.InternalError")

    world.cloud.hibernate = hibernate  # type: ignore[method-assign]
    until_down(world)
    world.run(2)

    assert attempt(world).detail == "stopped, read back from the cloud, for the reason Server.InternalError"


@pytest.mark.parametrize("error", [QuotaReached("tag: fifty tags", "TagLimitExceeded"), Denied("tag: UnauthorizedOperation", "UnauthorizedOperation")])
def test_a_tag_that_cannot_be_written_changes_nothing_about_what_was_done(tmp_path: Path, error: CloudError) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    world.add("i-a")
    world.cloud.fail("tag", error, times=99)

    until_down(world)
    world.run(3)

    assert [name for name, _ in world.cloud.verbs()] == ["stop", "snapshot"]
    assert attempt(world).outcome is Outcome.DONE


def test_a_group_that_ends_the_stopped_machine_is_told_and_nothing_is_started_or_ended_by_us(tmp_path: Path) -> None:
    """A member whose tag nobody saw: its group takes it for broken while its snapshots are made."""
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 9
    life = world.add("i-a")
    open_protections(world)
    until_down(world)
    world.cloud.change(life.id, state=InstanceState.TERMINATED)
    world.run(3)

    assert "terminate" not in [name for name, _ in world.cloud.verbs()]
    assert attempt(world).outcome is Outcome.FAILED
    assert "ended by somebody else" in (attempt(world).detail or "")


def test_a_rate_limit_waits_for_a_later_cycle_and_no_call_is_made_twice_in_one(tmp_path: Path) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    world.add("i-a", volumes=("vol-a",))
    world.cloud.fail("snapshot", TooSoon("snapshot: too soon", "SnapshotCreationPerVolumeRateExceeded"), times=2)

    until_down(world)
    world.run(5)

    assert [name for name, _ in world.cloud.verbs()] == ["stop", "snapshot", "snapshot", "snapshot"]
    assert attempt(world).outcome is Outcome.DONE


def test_no_more_than_four_snapshots_are_begun_in_a_cycle(tmp_path: Path) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    world.add("i-a", volumes=tuple(f"vol-{n}" for n in range(6)))
    until_down(world)
    first = len(world.cloud.snapshots_made)
    world.tick()

    assert first <= 4
    assert len(world.cloud.snapshots_made) <= first + 4
    world.run(4)
    assert attempt(world).outcome is Outcome.DONE


def spoil(world: World, **changes: object) -> None:
    """The newest snapshot of the last disk is not what was asked for."""
    made = world.cloud.snapshots_made
    made[-1] = replace(made[-1], **changes)  # type: ignore[arg-type]


WRONG = [
    pytest.param({"size_gib": 50}, "is 50 GiB and its disk 100 GiB", id="smaller than its disk"),
    pytest.param({"disk_gib": 200}, "is 100 GiB and its disk 200 GiB", id="of a disk that was enlarged since"),
    pytest.param({"encrypted": False}, "is not encrypted and its disk encrypted", id="encryption lost"),
    pytest.param({"disk_encrypted": False}, "is encrypted and its disk not encrypted", id="not of this disk"),
    pytest.param({"tags": "disk"}, "was taken as one of vol-other", id="tagged as one of another disk"),
]


def spoiled(world: World, changes: dict[str, object]) -> None:
    if changes.get("tags") == "disk":
        changes = {"tags": {**world.cloud.snapshots_made[-1].tags, "idle-reaper:disk": "vol-other"}}
    spoil(world, **changes)


@pytest.mark.parametrize("action", ["stop-and-snapshot", "terminate"])
@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_a_complete_snapshot_that_is_no_copy_of_its_disk_is_a_failure_and_nothing_is_ended(
    tmp_path: Path, action: str, changes: dict[str, object], said: str
) -> None:
    world = world_of(tmp_path, action)
    world.cloud.snapshots_complete_after = 2
    world.add("i-a", volumes=DISKS)
    open_protections(world)
    until_down(world)
    spoiled(world, changes)
    world.run(6)

    assert "terminate" not in [name for name, _ in world.cloud.verbs()]
    assert attempt(world).outcome is Outcome.FAILED
    assert said in (attempt(world).detail or "")
    assert len(world.cloud.snapshots_made) == len(DISKS)  # and no other is made in its place


@pytest.mark.parametrize("unread", ["size_gib", "encrypted", "disk_gib", "disk_encrypted", "started_at"])
def test_what_cannot_be_read_of_a_snapshot_or_its_disk_proves_nothing_and_is_waited_for(tmp_path: Path, unread: str) -> None:
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 2
    world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    until_down(world)
    (whole,) = world.cloud.snapshots_made
    spoil(world, **{unread: None})
    world.run(6)
    held = [name for name, _ in world.cloud.verbs()]
    spoil(world, **{unread: getattr(whole, unread)})
    world.run(2)

    assert "terminate" not in held
    assert [name for name, _ in world.cloud.verbs()][-1] == "terminate"
    assert attempt(world).outcome is Outcome.DONE


@pytest.mark.parametrize("how", ["of another attempt", "of another disk", "older than the stop"])
def test_another_snapshot_does_not_stand_for_ours(tmp_path: Path, how: str) -> None:
    """However complete it is: what it holds is not what the disk held when we stopped the machine."""
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 2
    world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    until_down(world)
    (ours,) = world.cloud.snapshots_made
    if how == "of another attempt":
        spoil(world, tags={**ours.tags, "idle-reaper:attempt": "a-another"})
    elif how == "of another disk":
        spoil(world, volume="vol-other")
    else:
        spoil(world, started_at=ours.started_at - timedelta(hours=1))  # type: ignore[operator]
    world.cloud.fail("snapshot", TooSoon("snapshot: too soon", "SnapshotCreationPerVolumeRateExceeded"), times=99)
    world.run(6)

    assert "terminate" not in [name for name, _ in world.cloud.verbs()]


def test_snapshots_that_fail_again_and_again_end_the_attempt_and_nothing_else(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    real = world.cloud.snapshot

    def failing(*args: object) -> str:
        world.cloud.snapshots_fail = {"vol-a"}
        return real(*args)  # type: ignore[arg-type]

    world.cloud.snapshot = failing  # type: ignore[method-assign, assignment]
    until_down(world)
    world.run(8)

    assert [name for name, _ in world.cloud.verbs()] == ["stop", *["snapshot"] * 3]
    assert attempt(world).outcome is Outcome.FAILED
    assert "failed 3 times" in (attempt(world).detail or "")


def test_a_machine_that_somebody_started_meanwhile_is_left_alone(tmp_path: Path) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    life = world.add("i-a", volumes=("vol-a",))
    world.cloud.snapshots_complete_after = 99
    until_down(world)
    world.cloud.change(life.id, state=InstanceState.STOPPED, launched_at=world.clock.now())
    world.run(2)

    assert attempt(world).outcome is Outcome.FAILED
    assert "started again by somebody else" in (attempt(world).detail or "")


def test_without_the_permission_the_stop_stands_and_it_is_said(tmp_path: Path) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    world.add("i-a")
    world.cloud.fail("snapshot", Denied("snapshot: UnauthorizedOperation", "UnauthorizedOperation"))

    until_down(world)
    world.run(2)

    assert attempt(world).outcome is Outcome.REFUSED
    assert world.stopped("i-a")


@pytest.mark.parametrize("how", ["kill switch", "observe"])
def test_the_kill_switch_and_observe_stop_the_later_steps_too(tmp_path: Path, how: str) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    world.add("i-a")
    world.cloud.reads_in_transition = 3  # still stopping when the first cycle is over
    until_down(world)
    if how == "observe":
        world.config = replace(world.config, mode=Mode.OBSERVE)
    else:
        (tmp_path / "STOP").write_text("fire drill")
    world.run(6)

    assert world.stopped("i-a")
    assert world.cloud.snapshots_made == []
    assert attempt(world).outcome is None


# --- terminate ------------------------------------------------------------------------------------------------------------


def test_a_machine_is_ended_only_after_all_its_disks_have_complete_snapshots(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 3
    life = world.add("i-a", volumes=DISKS)
    open_protections(world)
    complete_at_the_end: list[bool] = []
    world.cloud.before = lambda method, _: (
        complete_at_the_end.append(all(s.state is SnapshotState.COMPLETED for s in world.cloud.snapshots_made)) if method == "terminate" else None
    )

    until_down(world)
    world.run(8)

    assert [name for name, _ in world.cloud.verbs()] == ["stop", *["snapshot"] * 3, "terminate"]
    assert complete_at_the_end == [True]
    assert world.cloud.machines[life.id].state is InstanceState.TERMINATED
    assert attempt(world).outcome is Outcome.DONE
    assert "snap-" in (attempt(world).detail or "")


def open_protections(world: World, ending: bool | None = False) -> None:
    world.cloud.protections = lambda resource: Protections(False, termination_protected=ending)  # type: ignore[method-assign]


@pytest.mark.parametrize("ending", [True, None])
def test_termination_protection_holds_it_from_the_start(tmp_path: Path, ending: bool | None) -> None:
    world = world_of(tmp_path, "terminate")
    world.add("i-a")
    open_protections(world, ending)

    world.run(22)

    assert world.cloud.verbs() == []
    assert "termination protection" in world.why("i-a")


@pytest.mark.parametrize("missing", ["snapshot", "terminate"])
def test_without_its_verbs_nothing_begins(tmp_path: Path, missing: str) -> None:
    world = world_of(tmp_path, "terminate")
    world.config = replace(world.config, scope=replace(world.config.scope, verbs=tuple(v for v in VERBS if v != missing)))
    world.add("i-a")
    open_protections(world)

    world.run(22)

    assert world.cloud.verbs() == []


def test_whoever_snoozes_it_after_the_stop_keeps_it(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 4
    world.add("i-a")
    open_protections(world)
    until_down(world)
    keep(world, "i-a")
    world.run(8)

    assert "terminate" not in [name for name, _ in world.cloud.verbs()]
    assert attempt(world).outcome is Outcome.FAILED
    assert "not ended" in (attempt(world).detail or "")


def is_unprotected_by_a_lost_snapshot(world: World) -> None:
    world.cloud.snapshots_made.clear()


def test_a_snapshot_that_is_deleted_right_before_the_end_keeps_the_machine(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    world.add("i-a")
    deleted: list[bool] = []

    def protections(_: object) -> Protections:
        if world.cloud.snapshots_made and not deleted:
            deleted.append(True)
            is_unprotected_by_a_lost_snapshot(world)
            world.cloud.fail("snapshot", TooSoon("snapshot: too soon", "SnapshotCreationPerVolumeRateExceeded"), times=99)
        return Protections(False, termination_protected=False)

    world.cloud.protections = protections  # type: ignore[method-assign, assignment]
    until_down(world)
    world.run(8)

    assert deleted
    assert "terminate" not in [name for name, _ in world.cloud.verbs()]


@pytest.mark.parametrize(
    ("action", "how"),
    [
        *((action, how) for action in ("stop-and-snapshot", "terminate") for how in ("a wrong snapshot", "snapshots that fail", "no permission")),
        ("terminate", "a snooze"),
    ],
)
def test_a_stop_whose_later_steps_came_to_nothing_can_be_undone(tmp_path: Path, action: str, how: str) -> None:
    """The machine lies stopped by us: whoever wants it back gets it."""
    world = world_of(tmp_path, action)
    world.cloud.snapshots_complete_after = 2
    world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    if how == "no permission":
        world.cloud.fail("snapshot", Denied("snapshot: UnauthorizedOperation", "UnauthorizedOperation"), times=99)
    until_down(world)
    if how == "a wrong snapshot":
        spoil(world, size_gib=1)
    elif how == "snapshots that fail":
        for _ in range(3):
            world.cloud.snapshots_made[-1] = replace(world.cloud.snapshots_made[-1], state=SnapshotState.FAILED)
            world.cloud.snapshots_fail = {"vol-a"}
            world.run(1)
    elif how == "a snooze":
        keep(world, "i-a")
    world.run(6)
    ended = attempt(world)
    told = world.cloud.machines[ended.resource].tags.get("idle-reaper:stopped-by")
    undone = world.cycle.executor.start_again(ended, world.cycle.gather(world.config), world.leader.renew(), 1, "ada")

    assert ended.outcome in (Outcome.FAILED, Outcome.REFUSED)
    assert told == ended.id
    assert undone.action is Action.START
    assert undone.outcome is Outcome.DONE


def is_started(world: World) -> None:
    world.cloud.start(world.lives["i-a"].id)


def is_snoozed(world: World) -> None:
    if not world.store.snoozes(world.clock.now()):
        keep(world, "i-a")


def another_leads(world: World) -> None:
    world.store.acquire_lease("another", world.clock.now() + timedelta(days=1), timedelta(days=2))


def a_breaker_opens(world: World) -> None:
    now = world.clock.now()
    jump = Jump((world.lives["i-a"].id,), now, now + timedelta(hours=1), "many turned idle at once")
    world.cycle._fleet.step = lambda *_: (jump,)  # type: ignore[method-assign]


def the_configuration_is_refused(world: World) -> None:
    world.refused = "line 3 is not understood"


@pytest.mark.parametrize("happens", [is_started, is_snoozed, another_leads])
def test_what_happens_right_before_the_end_keeps_the_machine(tmp_path: Path, happens: Callable[[World], None]) -> None:
    """While its protections are read: its snapshots are complete, and everything else of the cycle was read before."""
    world = world_of(tmp_path, "terminate")
    world.add("i-a")

    def protections(_: object) -> Protections:
        if world.cloud.snapshots_made:
            happens(world)
        return Protections(False, termination_protected=False)

    world.cloud.protections = protections  # type: ignore[method-assign, assignment]
    until_down(world)
    world.run(8)

    assert world.cloud.snapshots_made
    assert all(s.state is SnapshotState.COMPLETED for s in world.cloud.snapshots_made)
    assert "terminate" not in [name for name, _ in world.cloud.verbs()]


@pytest.mark.parametrize("happens", [a_breaker_opens, the_configuration_is_refused])
def test_nothing_is_ended_while_nothing_may_be_taken_away(tmp_path: Path, happens: Callable[[World], None]) -> None:
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 3
    world.add("i-a")
    open_protections(world)
    until_down(world)
    happens(world)
    world.run(8)

    assert all(s.state is SnapshotState.COMPLETED for s in world.cloud.snapshots_made)
    assert "terminate" not in [name for name, _ in world.cloud.verbs()]
    assert attempt(world).outcome is None


def test_a_slow_read_before_the_end_is_made_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 3
    world.add("i-a")
    open_protections(world)
    until_down(world)
    slow = [True]
    world.cloud.before = lambda method, _: world.clock.advance(timedelta(seconds=11)) if method == "get" and slow[0] else None
    world.run(5)
    held = [name for name, _ in world.cloud.verbs()]
    slow[0] = False
    world.run(3)

    assert "terminate" not in held
    assert [name for name, _ in world.cloud.verbs()][-1] == "terminate"


def keep(world: World, native: str) -> None:
    from reaper.model.audit import AuditEntry, AuditKind
    from reaper.model.snooze import Snooze

    now, id = world.clock.now(), world.lives[native].id
    world.store.add_snooze(Snooze("s-1", id, now + timedelta(hours=9), "ada", "mine", now), AuditEntry(now, AuditKind.SNOOZED, "ada", "mine", id))


def test_a_machine_on_which_somebody_wrote_a_tag_since_our_stop_is_not_ended(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 2
    life = world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    until_down(world)
    world.cloud.change(life.id, tags={**world.cloud.machines[life.id].tags, "note": "I need what is on it"})
    world.run(6)

    assert world.cloud.verbs("terminate") == []
    assert attempt(world).outcome is Outcome.FAILED
    assert "tags were changed by somebody else" in (attempt(world).detail or "")


@pytest.mark.parametrize("how", ["it crashed before the call", "the call never left"])
def test_a_machine_that_its_owner_stopped_right_after_our_intent_is_not_ended(tmp_path: Path, how: str) -> None:
    """Our stop never arrived; hers did. Copies of its disks harm nobody, and an end is for good."""
    world = world_of(tmp_path, "terminate")
    life = world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    if how == "the call never left":
        world.cloud.fail("stop", Unreachable("stop: no connection"))
        world.run(40, until=lambda: bool(world.cloud.verbs("stop")))
    else:
        crash_before_the_stop(world)
        world.restart()
    world.cloud.change(life.id, state=InstanceState.STOPPED, changed_at=world.clock.now() + timedelta(seconds=20))
    world.run(8)

    assert world.cloud.verbs("terminate") == []
    assert attempt(world).outcome is (Outcome.REFUSED if how == "the call never left" else Outcome.FAILED)
    assert ("no connection" if how == "the call never left" else "whether it was our call") in (attempt(world).detail or "")


def test_an_end_that_somebody_else_made_is_not_told_as_ours(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 2
    life = world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    until_down(world)
    world.run(1)
    (tmp_path / "STOP").write_text("fire drill")
    world.run(4)
    world.cloud.change(life.id, state=InstanceState.TERMINATED)
    world.run(2)

    assert world.cloud.verbs("terminate") == []
    assert (attempt(world).outcome, attempt(world).detail) == (Outcome.FAILED, "the machine was ended by somebody else")


def test_a_disk_that_was_attached_again_after_its_snapshot_was_begun_is_no_reason_to_end_its_machine(tmp_path: Path) -> None:
    """In between it may have been written to elsewhere."""
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 3
    world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    until_down(world)
    spoil(world, disk_attached_at=world.clock.now() + timedelta(minutes=1))
    world.run(8)

    assert world.cloud.verbs("terminate") == []
    assert "attached again" in (attempt(world).detail or "")


def test_a_budget_of_ends_that_is_closed_after_the_stop_keeps_the_machine(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 2
    world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    until_down(world)
    world.config = replace(world.config, budgets=replace(world.config.budgets, deletes=CountBudget(per_day=0)))
    world.run(8)

    assert world.cloud.verbs("terminate") == []
    assert attempt(world).outcome is None


def test_its_own_place_in_a_budget_of_one_does_not_keep_a_machine_from_its_end(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    world.config = replace(world.config, budgets=replace(world.config.budgets, deletes=CountBudget(per_day=1)))
    world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    until_down(world)
    world.run(6)

    assert len(world.cloud.verbs("terminate")) == 1


def test_an_end_that_was_accepted_and_does_not_show_yet_is_not_asked_for_again_at_once(tmp_path: Path) -> None:
    world = world_of(tmp_path, "terminate")
    life = world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    sent: list[object] = []
    world.cloud.terminate = sent.append  # type: ignore[method-assign, assignment]
    until_down(world)
    world.run(30, until=lambda: bool(sent))
    world.run(1)
    asked = len(sent)
    world.cloud.change(life.id, state=InstanceState.TERMINATED)
    world.run(2)

    assert asked == 1
    assert attempt(world).outcome is Outcome.DONE


def test_four_snapshots_a_cycle_are_begun_at_most_also_where_some_are_refused(tmp_path: Path) -> None:
    world = world_of(tmp_path, "stop-and-snapshot")
    for name in "abc":
        world.add(f"i-{name}", volumes=tuple(f"vol-{name}{n}" for n in range(4)))
    made = world.cloud.snapshot

    def some(resource: ResourceId, volume: str, tags: Mapping[str, str]) -> str:
        if volume.endswith("3"):
            raise TooSoon("snapshot: too soon", "SnapshotCreationPerVolumeRateExceeded")
        return made(resource, volume, tags)

    world.cloud.snapshot = some  # type: ignore[method-assign]
    until_down(world, "i-c")
    world.run(4)

    begun = Counter(one.started_at for one in world.cloud.snapshots_made)
    assert max(begun.values()) <= 4


def test_a_machine_that_reads_as_stopping_once_more_while_it_is_deleted_is_waited_for(tmp_path: Path) -> None:
    """As Google's do; and copying its disks may have taken longer than a stop may."""
    world = world_of(tmp_path, "terminate")
    world.cloud.snapshots_complete_after = 30
    life = world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    until_down(world)

    world.cloud.ends_by_stopping = True
    world.run(60, until=lambda: world.state_of("i-a") is InstanceState.STOPPING)
    world.run(3)
    still_open = attempt(world).outcome is None
    world.cloud.change(life.id, state=InstanceState.TERMINATED)
    world.run(2)

    assert still_open
    assert attempt(world).outcome is Outcome.DONE


@pytest.mark.parametrize("action", ["stop-and-snapshot", "terminate"])
def test_a_machine_that_its_owner_stopped_while_we_were_down_is_neither_copied_nor_started_by_us(tmp_path: Path, action: str) -> None:
    world = world_of(tmp_path, action)
    life = world.add("i-a", volumes=("vol-a",))
    open_protections(world)
    crash_before_the_stop(world)
    world.clock.advance(timedelta(minutes=18))
    world.cloud.change(life.id, state=InstanceState.STOPPED, changed_at=world.clock.now() - timedelta(minutes=3))
    world.restart()
    world.run(6)

    assert attempt(world).outcome is Outcome.FAILED
    assert "whether by our call is not known" in (attempt(world).detail or "")
    assert not left_stopped(attempt(world))
    assert world.cloud.snapshots_made == []
