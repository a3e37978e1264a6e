"""Evenings, nights and mornings: the real cycle over a schedule, a fake cloud and a manual clock. Days in the office are 08:00 to 19:00 UTC."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from pathlib import Path

import pytest

from reaper.errors import Denied, NoCapacity
from reaper.model.decision import Action
from reaper.model.kinds.instance import InstanceState
from reaper.model.mark import Stage
from reaper.model.plan import Attempt, Outcome
from reaper.model.policy import Budgets, Configuration, CountBudget, Hours, IdleTerms, Mode
from reaper.model.schedule import Schedule, Weekly
from reaper.service import owed
from reaper.service.brakes import NAME as BRAKE
from reaper.service.snooze import snooze
from tests.scenarios.world import MINUTE, World, configuration, policy

CAPACITY = NoCapacity("start: InsufficientInstanceCapacity (no p3.2xlarge in eu-west-1a now)", "InsufficientInstanceCapacity")
MONDAY = datetime.fromisoformat("2026-03-02T00:00:00+00:00")


def hours(**changes: object) -> Hours:
    schedule = Schedule("office", "UTC", tuple(Weekly(day, time(8), 0, time(19)) for day in range(5)))
    of_schedule = {key: changes.pop(key) for key in ("on", "days_off", "only", "name") if key in changes}
    return Hours(replace(schedule, **of_schedule), digest=f"h{sorted(map(str, (*of_schedule.items(), *changes.items())))}", **changes)  # type: ignore[arg-type]


def terms(its: Hours | None, *more: Hours, **changes: object):
    """A policy whose own terms are far too long for one night, under a schedule."""
    long = policy(idle=IdleTerms(timedelta(days=3), 0.05, timedelta(days=4)), hours=its, digest=f"d-{its.digest if its else ''}", **changes)
    return configuration(long, hours=(*((its,) if its else ()), *more))


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One machine of a dev environment. It is a Monday, a while before the end of hours."""
    made = World(tmp_path, terms(hours()))
    made.add("i-a")
    at(made, "18:12", run=False)
    return made


def moment(clock: str, day: int = 0) -> datetime:
    return MONDAY + timedelta(days=day, hours=int(clock[:2]), minutes=int(clock[3:]))


def at(world: World, clock: str, day: int = 0, *, run: bool = True) -> None:
    """On to that moment: minute by minute, or in one leap in which the daemon was away."""
    until = moment(clock, day)
    if not run:
        world.clock.advance(until - world.clock.now())
        return
    while world.clock.now() < until:
        world.tick()


def sleep(world: World, clock: str, day: int) -> None:
    """A night in which nothing happens but a cycle an hour, each after a gap."""
    while world.clock.now() + timedelta(hours=1) < moment(clock, day):
        world.clock.advance(timedelta(hours=1) - MINUTE)
        world.tick()
    at(world, clock, day)


def calls(world: World, verb: str) -> int:
    return len(world.cloud.verbs(verb))


def told(world: World, event: str) -> list[str]:
    return [message.because for message in world.channel.messages if message.event == event]


def attempts(world: World, action: Action) -> list[Attempt]:
    return [attempt for attempt in reversed(world.store.attempts()) if attempt.action is action]


def boots(world: World, native: str, minutes: int = 3) -> None:
    """Its agent reports again so many minutes after it runs: the first window of a new boot."""
    life = world.lives[native]
    life.boot, life.booted_at, life.agent = life.boot + 1, world.clock.now(), True


def person_starts(world: World, native: str = "i-a") -> None:
    world.cloud.change(world.lives[native].id, state=InstanceState.RUNNING, launched_at=world.clock.now(), changed_at=world.clock.now())
    boots(world, native)


def in_haste(config: Configuration) -> Configuration:
    """The same with terms of five minutes, where a story is about the night: fewer minutes to live through."""
    before = config.policies[0]
    assert before.hours is not None
    term = timedelta(minutes=5)
    quick = replace(before.hours, wait=term, idle_for=term, held_for=term, digest=f"{before.hours.digest}-q")
    return replace(config, policies=(replace(before, hours=quick, digest=f"{before.digest}-q"),), hours=(quick,))


def stopped_in_the_evening(world: World) -> Attempt:
    world.config = in_haste(world.config)
    at(world, "18:50", run=False)
    at(world, "19:05")
    stop = attempts(world, Action.STOP)[0]
    assert stop.outcome is Outcome.DONE
    return stop


# --- evenings ----------------------------------------------------------------------------------------------------------


def test_an_idle_machine_is_warned_half_an_hour_before_the_end_and_stopped_after_it_and_never_before(world: World) -> None:
    at(world, "18:29")
    before = world.mark("i-a")
    at(world, "18:59")
    warned, early = world.mark("i-a"), calls(world, "stop")
    at(world, "19:05")
    stop = attempts(world, Action.STOP)[0]

    assert before is None
    assert warned is not None
    assert warned.cause == "after-hours"
    assert warned.stage is Stage.WARNED
    assert early == 0
    assert stop.intent_at >= moment("19:00")
    assert stop.owed_by == "office"


def test_a_late_run_is_told_before_the_end_and_stays_until_it_has_been_idle_for_the_short_term(world: World) -> None:
    life = world.lives["i-a"]
    life.load = lambda now: 0.9 if now < moment("19:40") else 0.0
    at(world, "18:45")
    notice = told(world, "hours-end")
    at(world, "19:50")
    at_work = (calls(world, "stop"), world.mark("i-a"))
    at(world, "20:10")
    warned = world.mark("i-a")
    at(world, "20:35")

    assert len(notice) == 1
    assert "19:00" in notice[0]
    assert "as long as it is at work" in notice[0]
    assert at_work == (0, None)
    assert warned is not None
    assert warned.warned_at is not None
    assert warned.warned_at >= moment("19:55")
    assert world.stopped("i-a")
    assert attempts(world, Action.STOP)[0].intent_at >= moment("20:25")
    assert told(world, "hours-end") == notice  # once


def test_a_machine_that_is_not_known_to_rest_is_held(world: World) -> None:
    at(world, "18:40")
    world.lives["i-a"].agent = False
    at(world, "20:30")

    assert calls(world, "stop") == 0
    assert "silent" in world.why("i-a")


@pytest.mark.parametrize(("word", "stops"), [("report", 0), ("warn-and-stop", 1)])
def test_a_machine_that_never_had_an_agent_goes_only_where_its_schedule_says_so(tmp_path: Path, word: str, stops: int) -> None:
    world = World(tmp_path, terms(hours(no_agent=word)))
    world.add("i-a").agent = False
    at(world, "18:15", run=False)
    at(world, "19:05")

    assert calls(world, "stop") == stops
    assert len(told(world, "warned")) == stops


@pytest.mark.parametrize(("word", "stops"), [("hold", 0), ("stop", 1)])
def test_a_busy_machine_is_stopped_by_the_clock_only_where_that_is_written_out(tmp_path: Path, word: str, stops: int) -> None:
    world = World(tmp_path, terms(hours(if_busy=word)))
    world.add("i-a").load = 0.9
    at(world, "18:15", run=False)
    at(world, "19:05")

    assert calls(world, "stop") == stops
    assert [attempt.at_work for attempt in attempts(world, Action.STOP)] == [True] * stops


def test_a_warning_that_was_given_is_kept_when_hours_end_in_the_middle_of_it(world: World) -> None:
    world.config = terms(hours())
    world.config = replace(world.config, policies=(replace(world.config.policies[0], idle=IdleTerms(timedelta(minutes=15), 0.05, timedelta(days=4))),))
    at(world, "18:50")

    assert len(told(world, "warned")) == 1
    assert told(world, "cleared") == []
    assert [attempt.owed_by for attempt in attempts(world, Action.STOP)] == [None]  # within hours: nobody asked for it back


def test_a_tag_names_another_schedule_or_none_and_one_that_cannot_be_read_changes_nothing_and_is_reported(tmp_path: Path) -> None:
    late = hours(name="late", on=tuple(Weekly(day, time(8), 0, time(23)) for day in range(5)))
    world = World(tmp_path, terms(hours(), late))
    for native, tag in (("i-a", None), ("i-b", "LATE"), ("i-c", "never"), ("i-d", "offce")):
        world.add(native, tags={"team": "ml", **({"Reaper-Hours": tag} if tag else {})})
    at(world, "18:12", run=False)
    at(world, "19:05")

    assert [world.stopped(native) for native in ("i-a", "i-b", "i-c", "i-d")] == [True, False, False, False]
    notes = world.results[-1].plan.notes
    assert len(notes) == 1
    assert "'offce', which is no schedule" in notes[0]


def test_nothing_is_done_in_observe_and_no_one_is_told(world: World) -> None:
    world.config = replace(world.config, mode=Mode.OBSERVE)
    at(world, "19:05")

    assert (calls(world, "stop"), told(world, "warned"), told(world, "hours-end")) == (0, [], [])


# --- nights -----------------------------------------------------------------------------------------------------------


def test_whoever_restarts_at_nine_and_again_at_eleven_keeps_it_until_hours_end_the_next_time(world: World) -> None:
    stopped_in_the_evening(world)
    at(world, "21:00", run=False)
    person_starts(world)
    at(world, "21:05")
    world.cloud.change(world.lives["i-a"].id, state=InstanceState.STOPPED, changed_at=world.clock.now())
    at(world, "23:00", run=False)
    person_starts(world)
    at(world, "23:05")
    sleep(world, "18:45", 1)
    all_day = calls(world, "stop")
    at(world, "19:05", 1)

    assert all_day == 1
    assert calls(world, "start") == 0  # it ran in the morning: nothing was owed
    assert calls(world, "stop") == 2
    assert len([w for w in told(world, "warned") if "19:00" in w]) == 2


def test_what_a_person_stopped_stays_stopped(world: World) -> None:
    world.cloud.change(world.lives["i-a"].id, state=InstanceState.STOPPED, changed_at=world.clock.now())
    sleep(world, "08:30", 1)

    assert calls(world, "start") == 0


def test_what_a_person_started_and_stopped_after_our_stop_stays_stopped(world: World) -> None:
    stopped_in_the_evening(world)
    at(world, "21:00", run=False)
    person_starts(world)
    world.tick()
    at(world, "21:30", run=False)
    world.cloud.change(world.lives["i-a"].id, state=InstanceState.STOPPED, changed_at=world.clock.now())
    sleep(world, "08:30", 1)

    assert calls(world, "start") == 0


def test_a_machine_that_somebody_resized_in_the_night_is_not_started_and_that_is_told_once(world: World) -> None:
    stopped_in_the_evening(world)
    world.cloud.change(world.lives["i-a"].id, type="p3.8xlarge")
    sleep(world, "08:30", 1)

    assert calls(world, "start") == 0
    assert len(told(world, "failed")) == 1
    assert "its type was changed" in told(world, "failed")[0]


@pytest.mark.parametrize("late", ["snooze", "tag"])
def test_a_late_night_is_kept_by_a_snooze_or_a_tag_and_no_longer_than_its_cap(world: World, late: str) -> None:
    life = world.lives["i-a"]
    at(world, "18:50")
    cap = world.config.policies[0].snooze_up_to
    if late == "snooze":
        snooze(world.store, life.id, moment("22:00"), "ada", "deadline", cap, world.clock.now())
    else:
        world.cloud.change(life.id, tags={"team": "ml", "owner": "ada", "reaper-keep-until": "2026-03-02T22:00:00+00:00"})
    at(world, "19:30")
    at(world, "21:40", run=False)
    at(world, "22:25")
    kept = calls(world, "stop")
    at(world, "22:40")

    assert kept == 0
    assert calls(world, "stop") == 1
    assert cap == timedelta(days=5)


# --- mornings ---------------------------------------------------------------------------------------------------------


def test_it_is_started_early_enough_to_be_ready_and_once_and_learns_how_long_that_takes(world: World) -> None:
    stopped_in_the_evening(world)
    world.lives["i-a"].agent = False
    sleep(world, "07:50", 1)
    early = calls(world, "start")
    at(world, "08:00", 1)
    begun = attempts(world, Action.START)
    at(world, "08:03", 1)
    boots(world, "i-a")
    at(world, "08:10", 1)
    stop_again = calls(world, "stop")
    at(world, "18:50", 1, run=False)
    at(world, "19:05", 1)
    world.lives["i-a"].agent = False
    sleep(world, "07:40", 2)
    at(world, "08:00", 2)
    second = attempts(world, Action.START)[-1]

    assert early == 0
    assert [(a.cause, a.actor, a.outcome) for a in begun] == [("morning-start", "reaper", Outcome.DONE)]
    assert moment("07:52", 1) <= begun[0].intent_at <= moment("07:56", 1)  # five minutes are assumed before any boot was seen
    assert stop_again == 1
    assert owed.read(world.store) != {}  # the second one is on its way
    assert moment("07:46", 2) <= second.intent_at <= moment("07:51", 2)  # the first took ten
    assert calls(world, "start") == 2


def test_a_holiday_has_no_morning_and_the_day_after_has(tmp_path: Path) -> None:
    world = World(tmp_path, terms(hours(days_off=(date(2026, 3, 3),))))
    world.add("i-a")
    at(world, "18:12", run=False)
    stopped_in_the_evening(world)
    sleep(world, "12:00", 1)
    on_the_holiday = calls(world, "start")
    sleep(world, "08:00", 2)

    assert on_the_holiday == 0
    assert calls(world, "start") == 1
    assert attempts(world, Action.START)[0].intent_at > moment("07:45", 2)


def test_a_controller_that_was_away_over_the_evening_warns_first_and_one_away_over_the_morning_starts_at_once(world: World) -> None:
    at(world, "18:45")
    world.daemon_up = False
    at(world, "21:00")
    world.daemon_up = True
    world.tick()
    at(world, "21:25")
    before = calls(world, "stop")
    at(world, "21:40")
    after = calls(world, "stop")
    at(world, "10:00", 1, run=False)
    world.restart()
    world.tick()
    world.tick()

    assert (before, after) == (0, 1)
    assert len(told(world, "warned")) == 2
    assert calls(world, "start") == 1
    assert attempts(world, Action.START)[0].intent_at < moment("10:03", 1)


def test_a_controller_that_was_away_for_all_of_a_day_starts_nothing_in_its_night_and_what_it_stopped_on_the_next_morning(world: World) -> None:
    stopped_in_the_evening(world)
    at(world, "20:00", 1, run=False)
    sleep(world, "07:30", 2)
    in_the_night = calls(world, "start")
    at(world, "09:00", 2)
    at(world, "12:00", 2)

    assert (in_the_night, calls(world, "start")) == (0, 1)
    assert not world.stopped("i-a")


def test_what_was_stopped_before_a_controller_was_away_for_weeks_is_not_started_out_of_the_blue(world: World) -> None:
    stopped_in_the_evening(world)
    at(world, "20:00", 21, run=False)
    sleep(world, "09:00", 22)

    assert calls(world, "start") == 0


def test_a_start_that_was_given_up_when_its_hours_ended_is_not_owed_again_by_the_next_ones(world: World) -> None:
    stopped_in_the_evening(world)
    world.cloud.fail("start", CAPACITY, times=500)
    sleep(world, "07:50", 1)
    sleep(world, "19:30", 1)
    tried = calls(world, "start")
    sleep(world, "09:00", 2)

    assert tried > 0
    assert calls(world, "start") == tried


@pytest.mark.parametrize("clock", ["18:59", "07:54"])
def test_a_leader_that_changes_at_the_boundary_drops_and_repeats_nothing(world: World, clock: str) -> None:
    if clock == "07:54":
        stopped_in_the_evening(world)
        sleep(world, clock, 1)
    else:
        at(world, clock)
    world.leader.release()
    world.restart()
    at(world, "19:10" if clock == "18:59" else "08:10", 0 if clock == "18:59" else 1)

    assert calls(world, "stop") == 1
    assert calls(world, "start") == (1 if clock == "07:54" else 0)


def test_a_stock_out_at_eight_is_tried_again_and_told_and_ends_with_the_hours(world: World) -> None:
    stopped_in_the_evening(world)
    world.lives["i-a"].agent = False
    world.cloud.fail("start", CAPACITY, times=3)
    sleep(world, "07:50", 1)
    at(world, "08:20", 1)
    boots(world, "i-a")
    at(world, "08:25", 1)

    assert calls(world, "start") == 4
    assert world.state_of("i-a") is InstanceState.RUNNING
    assert len(told(world, "late")) == 1
    assert {attempt.cause for attempt in attempts(world, Action.START)} == {"morning-start"}
    assert owed.read(world.store) == {}


def test_what_was_never_to_be_had_is_given_up_with_the_end_of_its_hours(world: World) -> None:
    stopped_in_the_evening(world)
    world.cloud.fail("start", CAPACITY, times=999)
    sleep(world, "08:10", 1)
    owes = list(owed.read(world.store).values())
    sleep(world, "19:05", 1)

    assert [one.until for one in owes] == [moment("19:00", 1)]
    assert owed.read(world.store) == {}
    assert len(told(world, "failed")) == 1


def test_a_stop_that_is_not_through_at_the_begin_of_hours_is_started_when_it_is(tmp_path: Path) -> None:
    world = World(tmp_path, terms(hours()))
    life = world.add("i-a")
    at(world, "07:10", 1, run=False)
    world.cloud.reads_in_transition = 8
    at(world, "08:01", 1)
    stopping, waits = world.state_of("i-a"), calls(world, "start")
    world.cloud.reads_in_transition = 0
    at(world, "08:15", 1)

    assert (stopping, waits) == (InstanceState.STOPPING, 0)
    assert attempts(world, Action.STOP)[0].intent_at < moment("08:00", 1)
    assert calls(world, "start") == 1
    assert world.cloud.machines[life.id].state is InstanceState.RUNNING


def test_a_start_is_owed_whichever_cause_stopped_it_outside_hours(world: World) -> None:
    idle = replace(world.config.policies[0], idle=IdleTerms(timedelta(minutes=30), 0.05, timedelta(hours=2)))
    world.config = replace(world.config, policies=(replace(idle, hours=hours(only="start")),))
    at(world, "18:50", run=False)
    at(world, "19:45")
    stop = attempts(world, Action.STOP)[0]
    sleep(world, "08:00", 1)

    assert (stop.cause, stop.owed_by) == ("gpu-idle", "office")
    assert calls(world, "start") == 1


@pytest.mark.parametrize(("also", "starts"), [(False, 0), (True, 1)])
def test_what_was_stopped_within_hours_is_started_only_where_that_is_written(tmp_path: Path, also: bool, starts: int) -> None:
    world = World(tmp_path, configuration(policy(hours=hours(start_also=also)), hours=(hours(start_also=also),)))
    world.add("i-a")
    at(world, "14:00", run=False)
    at(world, "15:00")
    lies = world.stopped("i-a")
    sleep(world, "08:00", 1)

    assert lies
    assert calls(world, "start") == starts


def test_a_schedule_that_only_stops_starts_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, terms(hours(only="stop")))
    world.add("i-a")
    at(world, "18:12", run=False)
    at(world, "19:05")
    sleep(world, "08:10", 1)

    assert [stop.owed_by for stop in attempts(world, Action.STOP)] == [None]
    assert calls(world, "start") == 0


def test_a_job_starts_in_its_order_and_others_at_a_bounded_rate(tmp_path: Path) -> None:
    config = terms(hours())
    world = World(tmp_path, replace(config, budgets=Budgets(stops=CountBudget(), starts=CountBudget(per_minute=1), breaker=None)))
    for native, place in (("i-w1", "2"), ("i-w2", "2"), ("i-head", "1")):
        world.add(native, tags={"team": "ml", "job-group": "g", "reaper-start-order": place})
    world.add("i-z")
    at(world, "18:12", run=False)
    at(world, "19:06")
    assert calls(world, "stop") == 4
    for life in world.lives.values():
        life.agent = False
    sleep(world, "07:35", 1)
    at(world, "07:52", 1)
    head_first = [resource.native for _, resource in world.cloud.verbs("start") if resource is not None]
    boots(world, "i-head")
    at(world, "08:00", 1)
    begun = [(attempt.resource.native, attempt.intent_at) for attempt in attempts(world, Action.START)]

    assert head_first[0] == "i-head"
    assert not {"i-w1", "i-w2"} & set(head_first)
    assert {native for native, _ in begun} == {"i-head", "i-w1", "i-w2", "i-z"}
    moments = [moment_ for _, moment_ in begun]
    assert all(later - earlier >= MINUTE for earlier, later in zip(moments, moments[1:], strict=False))


# --- edits ------------------------------------------------------------------------------------------------------------


def test_a_schedule_edited_at_noon_takes_effect_at_once_and_says_what_it_does_first(world: World) -> None:
    at(world, "18:14")
    lines: Callable[[], list[str]] = lambda: [e.because for e in world.store.audit() if e.kind.value == "configuration"]  # noqa: E731
    first = lines()
    early = hours(on=tuple(Weekly(day, time(8), 0, time(12)) for day in range(5)))
    world.config = terms(early)
    world.tick()
    said = lines()[len(first) :]
    noted = world.results[-1].plan.notes
    at(world, "19:05")

    assert len(first) == 1
    assert "first they end at Mon 2026-03-02 19:00 UTC" in first[0]
    assert len(said) == 1
    assert "is warned and stopped from now on; first they begin at Tue 2026-03-03 08:00 UTC" in said[0]
    assert said[0] in noted
    assert calls(world, "stop") == 1
    assert attempts(world, Action.STOP)[0].intent_at < moment("19:01")  # half an hour after it had been idle for long enough, whatever the old end


def test_hours_that_were_made_longer_in_the_night_do_not_lose_the_morning_of_what_they_stopped_before(world: World) -> None:
    stopped_in_the_evening(world)
    longer = tuple(Weekly(day, time(8), 0, time(22)) for day in range(5))
    at(world, "03:00", 1, run=False)
    world.config = in_haste(terms(hours(on=longer)))
    at(world, "03:10", 1)
    night = calls(world, "start")
    at(world, "07:40", 1, run=False)
    at(world, "08:05", 1)

    assert night == 0
    assert calls(world, "start") == 1


def test_a_countdown_under_hours_that_were_edited_begins_anew(world: World) -> None:
    at(world, "18:50")
    world.config = terms(hours(idle_for=timedelta(minutes=16), held_for=timedelta(minutes=16)))
    at(world, "18:53")
    mark = world.mark("i-a")

    assert mark is not None
    assert mark.warned_at is not None
    assert mark.warned_at > moment("18:50")
    assert len(told(world, "cleared")) == 1


def test_a_stop_whose_snapshot_was_refused_is_owed_its_morning_all_the_same(tmp_path: Path) -> None:
    made = terms(hours(), action="stop-and-snapshot")
    world = World(tmp_path, replace(made, scope=replace(made.scope, verbs=("stop", "start", "snapshot"))))
    world.add("i-a", volumes=("vol-a",))
    world.cloud.fail("snapshot", Denied("snapshot: UnauthorizedOperation", "UnauthorizedOperation"), times=99)
    at(world, "18:12", run=False)
    at(world, "19:30")
    lies, outcome = world.stopped("i-a"), attempts(world, Action.STOP_AND_SNAPSHOT)[0].outcome
    sleep(world, "08:00", 1)

    assert (lies, outcome) == (True, Outcome.REFUSED)
    assert calls(world, "start") == 1


def test_a_machine_that_was_suspended_for_the_night_is_resumed_in_the_morning(tmp_path: Path) -> None:
    world = World(tmp_path, terms(hours(), action="suspend"))
    life = world.add("i-a", suspends=True)
    at(world, "18:12", run=False)
    at(world, "19:30")
    lies = world.state_of("i-a")
    sleep(world, "08:00", 1)

    assert lies is InstanceState.SUSPENDED
    assert calls(world, "start") == 1
    assert world.cloud.machines[life.id].state is InstanceState.RUNNING


# --- a start that is tried again asks anew ---------------------------------------------------------------------------------


def sold_out_at_eight(world: World) -> None:
    """Its start was tried before eight and found no machine; it would be tried again within minutes."""
    stopped_in_the_evening(world)
    world.lives["i-a"].agent = False
    world.cloud.fail("start", CAPACITY, times=2)
    sleep(world, "07:56", 1)
    assert calls(world, "start") == 2
    assert owed.read(world.store) != {}


def week(start: time, end: time = time(19)) -> tuple[Weekly, ...]:
    return tuple(Weekly(day, start, 0, end) for day in range(5))


def test_a_start_that_is_tried_again_waits_for_hours_that_were_moved_to_later_and_is_made_then(world: World) -> None:
    sold_out_at_eight(world)
    before = calls(world, "start")
    world.config = in_haste(terms(hours(on=week(time(9, 30)))))
    at(world, "09:15", 1)
    waited = calls(world, "start") - before
    at(world, "09:30", 1)

    assert waited == 0
    assert calls(world, "start") > before
    assert world.state_of("i-a") is InstanceState.RUNNING


@pytest.mark.parametrize("now", ["over", "gone", "only-stop"])
def test_a_start_is_not_tried_again_for_hours_that_no_longer_want_it(world: World, now: str) -> None:
    sold_out_at_eight(world)
    before = calls(world, "start")
    changed = {"over": hours(on=week(time(7, 30), time(7, 55))), "gone": None, "only-stop": hours(only="stop")}[now]
    world.config = in_haste(terms(changed)) if changed is not None else terms(None)
    at(world, "09:00", 1)

    assert calls(world, "start") == before
    assert owed.read(world.store) == {}
    assert len(told(world, "failed")) == 1


@pytest.mark.parametrize("what", ["kill switch", "observe"])
def test_a_start_is_not_tried_again_under_the_kill_switch_nor_under_a_policy_that_only_observes(world: World, what: str) -> None:
    sold_out_at_eight(world)
    before, config = calls(world, "start"), world.config
    if what == "kill switch":
        (world.state / BRAKE).write_text("incident 12")
    else:
        world.config = replace(config, policies=(replace(config.policies[0], mode=Mode.OBSERVE),))
    at(world, "08:40", 1)
    waited = calls(world, "start") - before
    (world.state / BRAKE).unlink(missing_ok=True)
    world.config = config
    at(world, "09:00", 1)

    assert waited == 0
    assert world.state_of("i-a") is InstanceState.RUNNING
