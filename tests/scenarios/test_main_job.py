"""The main job: an idle machine is warned and then stopped, and its siblings with other lives stay up."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reaper.model.kinds.instance import Lifecycle
from reaper.model.policy import Mode, Protection, Selector
from reaper.model.resource import ResourceId
from tests.scenarios.world import ACCOUNT, REGION, Life, World, configuration, policy

ID = ResourceId("aws", ACCOUNT, REGION, "instance", "i-it")


def test_idle_machine_is_warned_served_its_wait_looked_at_again_and_stopped(world: World) -> None:
    world.add("i-it")

    world.run(60, lambda: world.stopped("i-it"))

    assert world.story("i-it") == ["nominated", "warned", "due", "intent", "accepted", "outcome"]
    assert world.cloud.verbs() == [("stop", ID)]
    warned = world.channel.told("warned")[0]
    assert (warned.owner, warned.name, "reaper snooze" in (warned.keep_it or "")) == ("ada", "it", True)


def test_stop_comes_no_earlier_than_term_and_wait_and_one_whole_window(world: World) -> None:
    world.add("i-it")

    minutes = world.run(60, lambda: world.stopped("i-it"))

    assert minutes >= 30 + 10 + 1


SPARED = [
    ("busy", Life(ID, load=0.8), {}, "working"),
    ("a short burst in every window", Life(ID, load=0.06), {}, "working"),
    ("starved: its job waits for data", Life(ID, held=True, wait=0.9), {}, "data wait"),
    ("held for less than its own term", Life(ID, held=True), {}, "held"),
    ("data wait of a held GPU unreadable", Life(ID, held=True, wait=None), {}, ""),
    ("CPU at work while the GPU rests", Life(ID, cpu=0.5), {}, ""),
    ("CPU not readable", Life(ID, cpu=None), {}, "CPU not readable"),
    ("an unverified voice", Life(ID, verified=False), {}, ""),
    ("never had an agent", Life(ID, agent=False), {}, "no agent"),
    ("spot", Life(ID), {"lifecycle": Lifecycle.SPOT}, "lifecycle spot"),
    ("lifecycle not known", Life(ID), {"lifecycle": None}, "not known"),
    ("capacity block", Life(ID), {"lifecycle": Lifecycle.CAPACITY_BLOCK}, "capacity-block"),
    ("member of a group", Life(ID), {"managed_by": "auto scaling group train-a"}, "auto scaling group train-a"),
    ("local disks", Life(ID), {"local_store": True}, "local disks"),
    ("local disks not known", Life(ID), {"local_store": None}, "not known"),
    ("claimed by another reaper", Life(ID), {"tags": {"team": "ml", "reaper": "other"}}, "claimed by other"),
    ("outside the scope", Life(ID), {"tags": {"team": "web"}}, ""),
    ("started a moment ago", Life(ID), {"launched_at": None}, ""),
    ("keep-until tag", Life(ID), {"tags": {"team": "ml", "reaper-keep-until": "2026-03-03"}}, "kept by its tag"),
    ("keep-until tag that cannot be read", Life(ID), {"tags": {"team": "ml", "reaper-keep-until": "soon"}}, "cannot be read"),
    ("fewer GPUs than its type has", Life(ID), {"gpus": 8, "type": "p3.16xlarge"}, ""),
    ("another GPU model than its type has", Life(ID), {"gpu_model": "H100"}, "H100"),
]  # fmt: skip


def an_hour(world: World) -> None:
    """Of reports, whose last 35 minutes the daemon is there for: before 30 nothing can be idle for its term."""
    world.daemon_up = False
    world.run(25)
    world.daemon_up = True
    world.run(35)


def test_the_machine_whose_siblings_follow_does_not_stay_up(world: World) -> None:
    world.add("i-it")

    an_hour(world)

    assert world.cloud.verbs() == [("stop", ID)]


@pytest.mark.parametrize(("life", "fields", "because"), [row[1:] for row in SPARED], ids=[row[0] for row in SPARED])
def test_sibling_with_another_life_stays_up(world: World, life: Life, fields: dict[str, object], because: str) -> None:
    own = world.add("i-it", life, **fields)
    if "gpus" in fields:
        own.gpus = 1
    if fields.get("launched_at", 0) is None:
        world.config = configuration(policy(min_age=timedelta(hours=2)))

    an_hour(world)

    assert world.cloud.verbs() == []
    assert because in world.why("i-it")


def test_one_busy_gpu_of_eight_keeps_the_machine(world: World) -> None:
    life = world.add("i-it", gpus=8, type="p3.16xlarge")
    usual = life.window

    def one_busy(now, span):  # type: ignore[no-untyped-def]
        seen = usual(now, span)
        return replace(seen, gpus=(*seen.gpus[:7], replace(seen.gpus[7], peak=0.7, mean=0.3)))

    life_with_one = type("OneBusy", (), {"id": life.id, "agent": True, "gpus": 8, "window": staticmethod(one_busy)})()
    world.lives["i-it"] = life_with_one

    an_hour(world)

    assert world.cloud.verbs() == []


def test_protected_machine_is_never_touched_and_says_by_what(world: World) -> None:
    world.config = configuration(protections=(Protection("three-week-run", Selector(ids=("i-it",)), "pre-training"),))
    world.add("i-it")

    an_hour(world)

    assert world.cloud.verbs() == []
    assert "three-week-run" in world.why("i-it")


def test_protection_that_was_deleted_before_its_end_holds_for_a_day(world: World) -> None:
    world.config = configuration(protections=(Protection("run", Selector(ids=("i-it",)), "pre-training"),))
    world.add("i-it")
    world.run(5)

    world.config = configuration()
    world.run(60)
    world.clock.advance(timedelta(hours=20))
    world.run(60)
    early = world.cloud.verbs()
    world.clock.advance(timedelta(hours=4))
    world.run(60)

    assert early == []
    assert world.cloud.verbs() == [("stop", ID)]


def test_stop_protection_of_the_owner_holds(world: World) -> None:
    world.add("i-it")
    world.cloud.stop_protected[ID] = True

    an_hour(world)

    assert world.cloud.verbs() == []
    assert "stop protection is on" in world.why("i-it")


def test_stop_protection_that_cannot_be_read_holds(world: World) -> None:
    world.add("i-it")
    world.cloud.stop_protected[ID] = None

    an_hour(world)

    assert world.cloud.verbs() == []


@pytest.mark.parametrize("which", ["ceiling", "policy"])
def test_observe_runs_the_whole_course_and_touches_and_tells_nobody(world: World, which: str) -> None:
    world.config = configuration(mode=Mode.OBSERVE) if which == "ceiling" else configuration(policy(mode=Mode.OBSERVE))
    world.add("i-it")

    an_hour(world)

    assert world.cloud.verbs() == []
    assert world.channel.messages == []
    assert world.story("i-it") == ["nominated", "warned", "due"]
    assert [w.by for w in world.results[-1].plan.withheld] == ["mode"]
    assert world.board.read(ID) == (None, None)


def test_gang_with_one_busy_member_stays_whole(world: World) -> None:
    world.add("i-it", tags={"team": "ml", "job-group": "run-7"})
    world.add("i-peer", Life(ID, load=0.9), tags={"team": "ml", "job-group": "run-7"})

    an_hour(world)

    assert world.cloud.verbs() == []
    assert "peer of the same job is working" in world.why("i-it")


def test_gang_with_one_silent_member_stays_whole(world: World) -> None:
    world.add("i-it", tags={"team": "ml", "job-group": "run-7"})
    world.add("i-peer", Life(ID, agent=False), tags={"team": "ml", "job-group": "run-7"})

    an_hour(world)

    assert world.cloud.verbs() == []


def test_gang_with_one_snoozed_member_stays_whole(world: World) -> None:
    from reaper.service.snooze import snooze

    world.add("i-it", tags={"team": "ml", "job-group": "run-7"})
    peer = world.add("i-peer", tags={"team": "ml", "job-group": "run-7"})
    snooze(world.store, peer.id, world.clock.now() + timedelta(days=1), "ada", "tuning", timedelta(days=5), world.clock.now())

    an_hour(world)

    assert world.cloud.verbs() == []
    assert [w.by for w in world.results[-1].plan.withheld] == ["gang"]


def test_idle_gang_goes_together(world: World) -> None:
    world.add("i-it", tags={"team": "ml", "job-group": "run-7"})
    world.add("i-peer", tags={"team": "ml", "job-group": "run-7"})

    world.run(60, lambda: world.stopped("i-it"))

    assert world.stopped("i-peer")


def test_stopped_member_does_not_keep_its_gang_up(world: World) -> None:
    from reaper.model.kinds.instance import InstanceState

    world.add("i-it", tags={"team": "ml", "job-group": "run-7"})
    world.add("i-peer", Life(ID, agent=False), tags={"team": "ml", "job-group": "run-7"}, state=InstanceState.STOPPED)

    world.run(60)

    assert world.stopped("i-it")
