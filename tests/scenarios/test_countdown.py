"""Between the warning and the stop: whatever changes is seen, and people are never hurried."""

from datetime import time, timedelta

from reaper.model.mark import Stage
from reaper.model.policy import Mode, Warn
from reaper.model.schedule import DailyHours
from reaper.service.snooze import snooze
from tests.scenarios.world import World, configuration, policy


def warned(world: World, native: str = "i-it") -> bool:
    mark = world.mark(native)
    return mark is not None and mark.stage is Stage.WARNED


def test_agent_that_dies_during_the_countdown_saves_the_machine(world: World) -> None:
    life = world.add("i-it")
    world.run(60, lambda: warned(world))

    life.agent = False
    world.run(120)

    assert world.cloud.verbs() == []


def test_agent_that_comes_back_after_a_hole_begins_a_new_idle_term(world: World) -> None:
    life = world.add("i-it")
    world.run(60, lambda: warned(world))
    life.agent = False
    world.run(10)

    life.agent = True
    minutes = world.run(120, lambda: world.stopped("i-it"))

    assert minutes >= 30 + 10


def test_job_that_begins_after_due_saves_the_machine(world: World) -> None:
    life = world.add("i-it")
    world.run(60, lambda: (m := world.mark("i-it")) is not None and m.stage is Stage.DUE)

    life.load = 0.9
    world.run(5)

    assert world.cloud.verbs() == []
    assert world.mark("i-it") is None
    assert world.channel.told("cleared")[0].name == "it"


def test_restart_within_ten_minutes_neither_forgets_nor_hurries(world: World) -> None:
    world.add("i-it")
    world.run(60, lambda: warned(world))
    world.run(4)
    world.daemon_up = False
    world.run(5)

    world.restart()
    world.daemon_up = True
    minutes = world.run(60, lambda: world.stopped("i-it"))

    assert len(world.channel.told("warned")) == 1
    assert 4 <= minutes <= 9


def test_longer_gap_of_the_daemon_warns_again(world: World) -> None:
    world.add("i-it")
    world.run(60, lambda: warned(world))
    world.daemon_up = False
    world.run(15)

    world.restart()
    world.daemon_up = True
    minutes = world.run(60, lambda: world.stopped("i-it"))

    assert len(world.channel.told("warned")) == 2
    assert minutes >= 10


def test_downtime_of_the_daemon_alone_never_makes_a_machine_idle(world: World) -> None:
    life = world.add("i-it")
    life.load = 0.9
    world.run(5)
    world.daemon_up, life.agent = False, False
    world.run(300)

    world.restart()
    world.daemon_up, life.agent, life.load = True, True, 0.0
    world.run(29)

    assert world.mark("i-it") is None


def test_snooze_during_the_countdown_clears_it_and_says_so(world: World) -> None:
    life = world.add("i-it")
    world.run(60, lambda: warned(world))

    snooze(world.store, life.id, world.clock.now() + timedelta(hours=1), "ada", "tuning", timedelta(days=5), world.clock.now())
    world.run(59)

    assert world.cloud.verbs() == []
    assert world.story("i-it")[-2:] == ["snoozed", "cleared"]


def test_after_a_snooze_the_owner_is_warned_again_in_full(world: World) -> None:
    life = world.add("i-it")
    world.run(60, lambda: warned(world))
    snooze(world.store, life.id, world.clock.now() + timedelta(minutes=20), "ada", "tuning", timedelta(days=5), world.clock.now())

    world.run(60, lambda: world.stopped("i-it"))

    assert world.stopped("i-it")
    assert len(world.channel.told("warned")) == 2


def test_warning_that_no_channel_accepts_never_starts_the_wait(world: World) -> None:
    world.add("i-it")
    world.channel.refusing = True

    world.run(90)
    silent = world.cloud.verbs()
    world.channel.refusing = False
    minutes = world.run(60, lambda: world.stopped("i-it"))

    assert silent == []
    assert minutes >= 10


def test_quiet_hours_do_not_count_towards_the_wait(world: World) -> None:
    # it is 09:00 UTC, which is 10:00 in Berlin: quiet until noon there
    quiet = DailyHours(time(8), time(12), "Europe/Berlin")
    world.config = configuration(policy(warn=Warn(timedelta(minutes=10), quiet)))
    world.add("i-it")

    minutes = world.run(200, lambda: world.stopped("i-it"))

    assert 120 + 10 <= minutes <= 120 + 14


def test_mode_switched_to_enforce_warns_anew(world: World) -> None:
    world.config = configuration(mode=Mode.OBSERVE)
    world.add("i-it")
    world.run(60)

    world.config = configuration()
    minutes = world.run(60, lambda: world.stopped("i-it"))

    assert minutes >= 10
    assert len(world.channel.told("warned")) == 1


def test_policy_edited_during_the_countdown_warns_anew(world: World) -> None:
    world.add("i-it")
    world.run(60, lambda: warned(world))
    world.run(8)

    world.config = configuration(policy(digest="d2"))
    minutes = world.run(60, lambda: world.stopped("i-it"))

    assert minutes >= 10
    assert len(world.channel.told("warned")) == 2


def test_policy_switched_from_observe_to_enforce_warns_anew(world: World) -> None:
    world.config = configuration(policy(mode=Mode.OBSERVE, digest="observe"))
    world.add("i-it")
    world.run(60)

    world.config = configuration(policy(digest="enforce"))
    minutes = world.run(60, lambda: world.stopped("i-it"))

    assert minutes >= 10


def test_nothing_is_taken_away_while_the_newest_configuration_is_refused(world: World) -> None:
    world.add("i-it")
    world.refused = "policy.research.idle.for: 2 is not a duration"

    world.run(90)

    assert world.cloud.verbs() == []
    assert world.results[-1].plan.withheld[0].by == "configuration"


def test_people_on_the_machine_learn_when_and_why(world: World) -> None:
    life = world.add("i-it")
    world.run(60, lambda: warned(world))

    notice, _ = world.board.read(life.id)

    assert notice is not None
    assert notice.action == "stop"
    assert notice.due_at == world.clock.now() + timedelta(minutes=10)


def test_reboot_during_the_countdown_begins_a_new_term(world: World) -> None:
    life = world.add("i-it")
    world.run(60, lambda: warned(world))

    life.boot, life.booted_at = 2, world.clock.now()
    minutes = world.run(120, lambda: world.stopped("i-it"))

    assert minutes >= 40


def test_hook_that_says_not_now_keeps_the_machine_up_to_the_cap(world: World) -> None:
    world.config = configuration(policy(hook_veto_up_to=timedelta(hours=1)))
    life = world.add("i-it")
    life.hook = "not-now"

    minutes = world.run(200, lambda: world.stopped("i-it"))

    assert minutes >= 30 + 10 + 60


def test_machine_retagged_out_of_scope_during_the_countdown_is_left_alone(world: World) -> None:
    life = world.add("i-it")
    world.run(60, lambda: warned(world))

    world.cloud.change(life.id, tags={"team": "web"})
    world.run(30)

    assert world.cloud.verbs() == []
    assert world.mark("i-it") is None
