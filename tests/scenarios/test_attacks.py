"""Attacks on the claim that nothing this daemon does can stop a machine it may not stop, twice, unwarned, or half a job."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from reaper.config.live import LiveConfiguration
from reaper.decide.breaker import Jump
from reaper.errors import AnswerLost, Denied, LeaseLost, StoreError
from reaper.model.kinds.instance import Instance, InstanceState
from reaper.model.mark import Mark, Stage
from reaper.model.plan import Outcome, Plan
from reaper.model.policy import BreakerTerms, Budgets, CountBudget, Mode, Scope, Selector, WebhookChannel
from reaper.model.resource import Place, ResourceId
from reaper.ports import Lease, Listed, Message, Notifier
from reaper.service.announce import Announcer
from reaper.service.execute import Withdrawn
from reaper.service.fleet import FleetWatch
from reaper.service.snooze import snooze
from tests.cli.conftest import ENFORCING
from tests.scenarios.siege import HELD, IDLE, WAIT, Crash, Fault, Siege, quick
from tests.scenarios.world import ACCOUNT, MINUTE, REGION

ID = ResourceId("aws", ACCOUNT, REGION, "instance", "i-it")
HERE = Place("aws", ACCOUNT, REGION)
HOUR = timedelta(hours=1)


@pytest.fixture
def siege(tmp_path: Path) -> Siege:
    return Siege(tmp_path)


def to_acting(siege: Siege) -> None:
    siege.add("i-it")
    siege.until_due()


def to_warning(siege: Siege) -> None:
    siege.add("i-it")
    siege.run(2)


def to_countdown(siege: Siege) -> None:
    siege.add("i-it")
    siege.run(20, lambda: siege.mark("i-it") is not None)
    assert siege.mark("i-it") is not None


MOMENTS = [("the cycle that nominates and warns", to_warning), ("the cycle that acts", to_acting)]


def breakable(tmp_path: Path, lead_up: Callable[[Siege], None], strike: Callable[[], None], *, after: bool) -> Iterator[tuple[str, Siege]]:
    """The same life again and again, each time broken at the next call of one cycle, until there is no such call."""
    first = Siege(tmp_path)
    lead_up(first)
    for at in count(1):
        siege = first.again()
        siege.fault = Fault(strike, at, after)
        siege.minute()
        try:
            siege.cycle_once()
        except Crash:
            siege.restart()
        if not siege.fault.struck:
            assert at > 20, "hardly any call was broken: the test shows nothing"
            return
        yield f"{'after' if after else 'before'} call {at}, {siege.fault.calls[-1]}", siege


def ends_well(broken: str, siege: Siege) -> None:
    """Whatever broke: stopped once in the end, after a warning and its wait (the witness), every attempt closed, and told."""
    siege.run(30, lambda: siege.stopped("i-it"))
    siege.run(3)

    assert siege.stopped("i-it"), f"{broken}: it was never stopped"
    assert siege.stops == [ID], f"{broken}: stopped {len(siege.stops)} times"
    assert "None" not in siege.outcomes("i-it"), f"{broken}: an attempt was lost open"
    assert siege.outcomes("i-it").count("done") == 1, broken
    assert {"warned", "intent", "outcome"} <= set(siege.story("i-it")), broken


def raise_store_error() -> None:
    raise StoreError("the disk is full")


def crash() -> None:
    raise Crash


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done all the same"])
@pytest.mark.parametrize("lead_up", [row[1] for row in MOMENTS], ids=[row[0] for row in MOMENTS])
def test_store_that_fails_at_any_call_neither_hurries_nor_forgets(tmp_path: Path, lead_up: Callable[[Siege], None], after: bool) -> None:
    for broken, siege in breakable(tmp_path, lead_up, raise_store_error, after=after):
        ends_well(broken, siege)


@pytest.mark.parametrize("lead_up", [row[1] for row in MOMENTS], ids=[row[0] for row in MOMENTS])
def test_crash_between_any_two_calls_of_store_and_cloud_loses_nothing(tmp_path: Path, lead_up: Callable[[Siege], None]) -> None:
    for broken, siege in breakable(tmp_path, lead_up, crash, after=False):
        ends_well(broken, siege)


def test_crash_between_any_two_calls_with_somebody_back_at_work_stops_nobody(tmp_path: Path) -> None:
    for broken, siege in breakable(tmp_path, to_acting, crash, after=False):
        before = len(siege.stops)
        siege.lives["i-it"].load = 0.9  # from here on the witness refuses any stop

        siege.run(9)

        assert len(siege.stops) == before, broken
        assert "None" not in siege.outcomes("i-it"), broken


@pytest.mark.parametrize("away", [timedelta(0), timedelta(minutes=4)], ids=["while the lease holds", "after the lease ran out"])
def test_second_daemon_that_cycles_at_any_call_of_the_first_stops_nothing_twice(tmp_path: Path, away: timedelta) -> None:
    first = Siege(tmp_path)
    to_acting(first)
    for at in count(1):
        siege = first.again()
        other = siege.aloof()

        def meanwhile(siege: Siege = siege, other: Siege = other) -> None:
            for _ in range(int(away / MINUTE)):
                other.minute()
            other.cycle_once()

        siege.fault = Fault(meanwhile, at)
        siege.minute()
        siege.cycle_once()
        if not siege.fault.struck:
            assert at > 20, "hardly any call was interrupted: the test shows nothing"
            return
        if siege.fault.calls[-1] == "cloud.stop" and away:
            # Frozen for minutes on the very threshold of the call: nobody can take it back, and the other gave it up for lost.
            assert siege.stops == [ID]
            continue

        ends_well(f"call {at}, {siege.fault.calls[-1]}", siege)


# --- a gang -------------------------------------------------------------------------------------------------------------


def gang(siege: Siege, size: int = 3) -> list[str]:
    names = [f"i-{n}" for n in range(size)]
    for name in names:
        siege.add(name, tags={"team": "ml", "job-group": "a"})
    return names


def test_gang_whose_first_member_cannot_be_stopped_stays_up_whole(siege: Siege) -> None:
    gang(siege)
    siege.until_due()
    siege.cloud.fail("stop", Denied("no", "UnauthorizedOperation"))

    siege.run(2)

    assert len(siege.stops) == 1
    assert not any(siege.stopped(name) for name in siege.lives)
    assert [r.withdrawn for r in siege.results[-2].results[1:]] == ["gang: goes with its job whole, and 0 stays up"] * 2


def test_gang_goes_no_further_while_the_fate_of_one_is_not_known(siege: Siege) -> None:
    gang(siege)
    siege.until_due()
    siege.cloud.fail("stop", AnswerLost("connection reset"))

    siege.run(2)

    assert len(siege.stops) == 1


def test_plan_of_yesterday_does_not_split_a_job_that_grew_since(siege: Siege) -> None:
    names = gang(siege, 2)
    siege.until_due()
    siege.minute()
    plan = old_plan(siege)
    # a third one joins: quiet for the whole term, and never warned
    siege.add("i-9", tags={"team": "ml", "job-group": "a"})
    siege.refused = "so that the daemon's own cycles only watch"
    siege.run(5)

    approve(siege, plan)

    assert [siege.stopped(name) for name in names] == [False, False]
    assert siege.stops == []


def old_plan(siege: Siege) -> Plan:
    """What the cycle would do now, made and not carried out."""
    preview = siege.cycle.preview(siege.config, fetch=True)
    assert preview.plan.actions, "there is nothing in the plan: the test shows nothing"
    return preview.plan


def approve(siege: Siege, plan: Plan) -> tuple[str | None, ...]:
    lease = siege.leader.renew()
    assert lease is not None
    results = siege.cycle.apply(plan, siege.cycle.gather(siege.config), lease, 10, "ada")
    return tuple(result.withdrawn for result in results)


def test_tag_that_ties_it_to_an_unwarned_machine_at_the_last_moment_saves_it(siege: Siege) -> None:
    siege.add("i-it")
    siege.until_due()
    siege.add("i-late", tags={"team": "ml", "job-group": "a"})
    siege.config = quick(policy={"when": Selector(ids=("i-it",))}, scope=Scope(Selector(ids=("i-it", "i-late")), ("stop",), given=True))

    def tie(method: str, resource: ResourceId | None) -> None:
        if method == "get":
            siege.cloud.change(ID, tags={"team": "ml", "job-group": "a"})

    siege.cloud.before = tie
    siege.run(6)

    assert siege.cloud.verbs() == []


def test_lease_that_is_taken_in_the_middle_of_a_gang_ends_it_there(siege: Siege) -> None:
    names = gang(siege)
    siege.until_due()
    witness = siege.cloud.before
    assert witness is not None

    def rob(method: str, resource: ResourceId | None) -> None:
        witness(method, resource)
        if method == "stop":
            held = siege.store.held_lease()
            assert held is not None
            siege.store.release_lease(held)
            assert siege.store.acquire_lease("thief", siege.clock.now(), HOUR) is not None

    siege.cloud.before = rob
    siege.run(2)

    assert len(siege.stops) == 1
    assert sum(siege.stopped(name) for name in names) == 1


def test_crash_in_the_middle_of_a_gang_never_exceeds_the_budget(tmp_path: Path) -> None:
    first = Siege(tmp_path, quick(budgets=Budgets(stops=CountBudget(per_hour=2), breaker=None)))
    gang(first, 2)
    first.add("i-7")
    first.add("i-8")
    first.until_due()
    for at in range(25, 200, 4):
        siege = first.again()
        siege.fault = Fault(crash, at)
        siege.minute()
        try:
            siege.cycle_once()
        except Crash:
            siege.restart()
        if not siege.fault.struck:
            assert at > 60, "the gang was never on its way: the test shows nothing"
            return

        siege.run(12)

        assert len(siege.stops) <= 2, f"call {at}"
        assert len(set(siege.stops)) == len(siege.stops), f"call {at}: one was stopped twice"


# --- the last moment ----------------------------------------------------------------------------------------------------


def test_model_put_on_a_long_quiet_gpu_at_the_last_moment_saves_it(siege: Siege) -> None:
    life = siege.add("i-it")
    siege.config = quick(budgets=Budgets(stops=CountBudget(per_hour=0), breaker=None))
    siege.run(int(HELD / MINUTE) + 4)  # quiet for so long that "held" nominates at once, too
    siege.config = quick()
    came: list[bool] = []
    witness = siege.cloud.before
    assert witness is not None

    def come(method: str, resource: ResourceId | None) -> None:
        witness(method, resource)
        if method == "get" and not came:
            came.append(True)
            life.held = True
            siege.clock.advance(timedelta(seconds=6))
            siege.report(life, timedelta(seconds=40))

    siege.cloud.before = come
    siege.run(1)

    assert came
    assert siege.stops == []


class Meanwhile:
    """A store in which something happens while the intent is written."""

    def __init__(self, siege: Siege, change: Callable[[], None]) -> None:
        siege.fault = self
        self._change = change
        self.armed = self.struck = False

    def around(self, name: str, call: Callable[[], object]) -> object:
        answer = call()
        if self.armed and name == "store.begin_attempt" and not self.struck:
            self.struck = True
            self._change()
        return answer


def keep_it(siege: Siege) -> None:
    snooze(siege.store, ID, siege.clock.now() + HOUR, "ada", "tuning", timedelta(days=5), siege.clock.now())


def go_to_work(siege: Siege) -> None:
    life = siege.lives["i-it"]
    life.load = 0.9
    siege.clock.advance(timedelta(seconds=2))
    siege.report(life, timedelta(seconds=2))


WHILE_WRITING: list[tuple[str, Callable[[Siege], None]]] = [
    ("somebody snoozed it", keep_it),
    ("a job began", go_to_work),
    ("the kill switch was pulled", lambda s: (s.state / "STOP").write_text("incident") and None),
    ("our lease ran out", lambda s: s.clock.advance(timedelta(minutes=4)) and None),
    ("the disk took too long", lambda s: s.clock.advance(timedelta(seconds=11)) and None),
    ("our clock was set back", lambda s: s.clock.step_wall(-HOUR)),
]


@pytest.mark.parametrize("change", [row[1] for row in WHILE_WRITING], ids=[row[0] for row in WHILE_WRITING])
def test_what_happens_while_the_intent_is_written_still_saves_it(siege: Siege, change: Callable[[Siege], None]) -> None:
    to_acting(siege)
    meanwhile = Meanwhile(siege, lambda: change(siege))  # type: ignore[arg-type]

    siege.tick()

    assert meanwhile.struck
    assert siege.stops == []
    assert siege.outcomes("i-it") == ["abandoned"]


def another(siege: Siege) -> Instance:
    return siege.cloud.machines[siege.lives["i-other"].id]


def test_fresh_read_that_answers_about_another_machine_is_no_fresh_read(siege: Siege) -> None:
    siege.add("i-it")
    siege.add("i-other", tags={"team": "web"})
    siege.until_due("i-it")
    siege.cloud.get = lambda resource: another(siege)  # type: ignore[method-assign]

    siege.run(3)

    assert siege.stops == []
    assert "i-other" in (siege.results[-1].results[0].withdrawn or "")


def test_attempt_is_not_closed_by_what_is_read_of_another_machine(siege: Siege) -> None:
    siege.add("i-it")
    siege.add("i-other", tags={"team": "web"}, state=InstanceState.STOPPED)
    siege.until_due("i-it")
    get = siege.cloud.get
    siege.cloud.get = lambda resource: get(resource) if not siege.stops else another(siege)  # type: ignore[method-assign]

    siege.run(3)

    assert siege.outcomes("i-it") == ["None"]


def test_machine_that_is_listed_in_two_places_is_held(siege: Siege) -> None:
    made = siege.add("i-it")
    listing = siege.cloud.list

    def twice() -> tuple[Listed, ...]:
        machine = siege.cloud.machines[made.id]
        return (*listing(), Listed(Place("aws", ACCOUNT, "eu-west-9"), (replace(machine, tags={"team": "ml", "x": "1"}),)))

    siege.cloud.list = twice  # type: ignore[method-assign]
    siege.run(12)

    assert siege.stops == []
    assert "is listed in" in siege.why("i-it")


def test_machine_replaced_under_the_same_name_begins_with_nothing_of_the_old_one(siege: Siege) -> None:
    siege.add("i-old", name="trainer")
    siege.until_due()

    del siege.cloud.machines[siege.lives["i-old"].id]
    new = siege.add("i-new", name="trainer")
    siege.lives.pop("i-old")
    minutes = siege.run(20, lambda: siege.stopped("i-new"))

    assert minutes >= (IDLE + WAIT) / MINUTE
    assert siege.stops == [new.id]


# --- modes, clocks, memory ----------------------------------------------------------------------------------------------


def test_crash_in_the_first_cycle_of_observe_leaves_no_warning_to_enforce(tmp_path: Path) -> None:
    first = Siege(tmp_path)
    to_warning(first)
    for at in count(1):
        siege = first.again()
        siege.config = quick(mode=Mode.OBSERVE)
        siege.fault = Fault(crash, at)
        siege.minute()
        try:
            siege.cycle_once()
        except Crash:
            siege.restart()
        if not siege.fault.struck:
            return
        siege.config = quick()

        siege.run(20, lambda siege=siege: siege.stopped("i-it"))  # type: ignore[misc]

        assert siege.stops == [ID]  # and the witness saw its warning and its wait


def test_crash_of_the_very_first_cycle_leaves_no_warning_of_observe_either(tmp_path: Path) -> None:
    left_a_mark = 0
    for at in count(15):
        siege = Siege(tmp_path, quick(mode=Mode.OBSERVE))
        siege.daemon_up = False
        siege.add("i-it")
        siege.run(6)
        siege.fault = Fault(crash, at)
        siege.daemon_up = True
        try:
            siege.tick()
        except Crash:
            siege.restart()
        if not siege.fault.struck:
            break
        left_a_mark += siege.mark("i-it") is not None
        siege.config = quick()

        siege.run(20, lambda siege=siege: siege.stopped("i-it"))  # type: ignore[misc]

        assert siege.stops == [ID]  # and the witness saw its warning and its wait
    assert left_a_mark >= 2


def test_mode_that_flips_every_cycle_never_acts(siege: Siege) -> None:
    siege.add("i-it")

    for n in range(24):
        siege.config = quick(mode=Mode.ENFORCE if n % 2 else Mode.OBSERVE)
        siege.tick()

    assert siege.stops == []


def test_observe_ceiling_binds_a_configuration_that_enforces(siege: Siege) -> None:
    siege.ceiling = Mode.OBSERVE
    siege.restart()
    siege.add("i-it")

    siege.run(15)

    assert siege.cloud.verbs() == []
    assert siege.channel.messages == []


STEPS = [
    ("an hour forward", (HOUR,)), ("an hour back", (-HOUR,)), ("back and forth", (-HOUR, HOUR)), ("forth and back", (HOUR, -HOUR)),
    ("nine minutes forward, again and again", (9 * MINUTE,) * 4), ("nine minutes back, again and again", (-9 * MINUTE,) * 4),
]  # fmt: skip


@pytest.mark.parametrize("steps", [row[1] for row in STEPS], ids=[row[0] for row in STEPS])
def test_clock_that_steps_in_the_countdown_never_shortens_it(siege: Siege, steps: tuple[timedelta, ...]) -> None:
    siege.config = quick(policy={"warn": replace(quick().policies[0].warn, wait=timedelta(minutes=8))})
    siege.add("i-it")
    siege.run(20, lambda: siege.mark("i-it") is not None)
    ran = siege.clock.monotonic()

    for step in steps:
        siege.clock.step_wall(step)
        siege.cloud.off_by = step  # the cloud's Date header shows it
        siege.run(1)
    at_first = list(siege.stops)
    siege.cloud.off_by = timedelta(0)
    siege.run(60, lambda: siege.stopped("i-it"))

    assert at_first == []
    # a step counts at most two cycles of the wait, and no more
    assert siege.clock.monotonic() - ran >= 8 * 60 - 60 * len(steps)


def test_old_leader_that_wakes_up_does_not_bring_back_marks_that_were_cleared(siege: Siege) -> None:
    to_acting(siege)
    old = siege.leader.renew()
    assert old is not None
    stale = siege.mark("i-it")
    assert isinstance(stale, Mark)
    other = siege.aloof()
    siege.clock.advance(timedelta(minutes=15))
    other.cycle_once()  # warns anew after the gap
    anew = other.mark("i-it")

    with pytest.raises(LeaseLost):
        siege.store.save_marks((stale,), (), (), old)

    assert siege.mark("i-it") == anew != stale


def test_work_that_was_reported_at_the_standbys_door_saves_the_machine(siege: Siege) -> None:
    to_acting(siege)
    standby = siege.aloof()
    life = siege.lives["i-it"]
    siege.minute()

    life.load = 0.9
    siege.clock.advance(timedelta(seconds=5))
    standby.report(life, timedelta(seconds=5))
    siege.cycle_once()

    assert siege.stops == []


def test_work_that_reaches_the_standbys_door_after_the_plan_saves_the_machine(siege: Siege) -> None:
    to_acting(siege)
    standby = siege.aloof()
    came: list[bool] = []

    def come(method: str, resource: ResourceId | None) -> None:
        assert method != "stop"
        if method == "get" and not came:
            came.append(True)
            siege.lives["i-it"].load = 0.9
            siege.clock.advance(timedelta(seconds=5))
            standby.report(siege.lives["i-it"], timedelta(seconds=5))

    siege.cloud.before = come
    siege.tick()

    assert came
    assert siege.cloud.verbs() == []


def test_fleet_that_falls_idle_while_we_restart_still_opens_the_breaker(tmp_path: Path) -> None:
    siege = Siege(tmp_path, quick(budgets=Budgets(stops=CountBudget(), breaker=BreakerTerms(0.25, timedelta(minutes=15), 3))))
    lives = [siege.add(f"i-{n}") for n in range(6)]
    for life in lives:
        life.load = 0.9
    siege.run(5)

    siege.daemon_up = False
    for life in lives[:4]:
        life.load = 0.0
    siege.run(2)
    siege.restart()
    siege.daemon_up = True
    siege.run(8)

    assert siege.stops == []
    assert {w.by for w in siege.results[-1].plan.withheld} == {"breaker"}


def test_machines_idle_for_hours_at_our_start_open_no_breaker(tmp_path: Path) -> None:
    siege = Siege(tmp_path, quick(budgets=Budgets(stops=CountBudget(), breaker=BreakerTerms(0.25, timedelta(minutes=15), 3))))
    lives = [siege.add(f"i-{n}") for n in range(4)]
    siege.daemon_up = False
    for life in lives:
        life.load = 0.9
    siege.run(2)
    for life in lives:
        life.load = 0.0
    siege.run(20)

    siege.restart()
    siege.daemon_up = True
    siege.run(1)

    assert siege.results[-1].jumps == ()


# --- budgets ------------------------------------------------------------------------------------------------------------


def test_hour_of_the_budget_ends_after_an_hour_and_not_when_the_clock_strikes(siege: Siege) -> None:
    siege.config = quick(budgets=Budgets(stops=CountBudget(per_hour=1), breaker=None))
    siege.clock.advance(timedelta(minutes=47))  # the first stop comes right before ten
    siege.add("i-1")
    siege.add("i-2")
    siege.run(20, lambda: len(siege.stops) == 1)

    minutes = siege.run(90, lambda: len(siege.stops) == 2)

    assert 60 <= minutes <= 61


def test_day_of_the_budget_ends_at_midnight_of_its_zone(siege: Siege) -> None:
    siege.config = quick(budgets=Budgets(stops=CountBudget(per_day=1, zone="Europe/Berlin"), breaker=None))
    siege.clock.advance(timedelta(hours=13, minutes=30))  # 22:30 UTC is 23:30 in Berlin
    siege.add("i-1")
    siege.add("i-2")
    siege.run(28)
    before = len(siege.stops)

    siege.run(5)

    assert before == 1
    assert len(siege.stops) == 2


# --- what stands beside us breaks ---------------------------------------------------------------------------------------


class Exploding:
    name = "pager"

    def send(self, message: Message) -> None:
        raise KeyError(message.event)


def test_channel_that_breaks_has_accepted_nothing_and_ends_no_cycle(siege: Siege) -> None:
    siege.cycle._announcer = Announcer({"log": Exploding()})
    siege.add("i-it")

    siege.run(12)

    assert siege.stops == []
    assert len(siege.results) == 12
    assert siege.mark("i-it").stage is Stage.NOMINATED  # type: ignore[union-attr]


def test_channel_that_breaks_silences_no_other(siege: Siege) -> None:
    warn = replace(quick().policies[0].warn, via=("pager", "log"))
    siege.config = quick(policy={"warn": warn})
    siege.cycle._announcer = Announcer({"pager": Exploding(), "log": siege.channel})
    siege.add("i-it")

    siege.run(12)

    assert siege.stops == [ID]


def test_warning_goes_where_the_newest_configuration_points(siege: Siege) -> None:
    built: list[str] = []

    def build(configuration: object) -> dict[str, Notifier]:
        built.append(str(getattr(configuration, "digest", "")))
        return {"log": siege.channel}

    siege.cycle._announcer = Announcer({}, build)
    siege.run(2)
    siege.config = replace(siege.config, channels={"team": WebhookChannel("https://example.org/new")}, digest="c2")
    siege.run(2)

    assert built == ["c1", "c2"]


def explode(*_: object) -> None:
    raise RuntimeError("not our day")


@pytest.mark.parametrize("what", ["seen", "cycle_finished", "leading", "configuration_refused", "kill_switch", "newest"])
def test_whoever_only_watches_cannot_end_the_loop(siege: Siege, what: str) -> None:
    siege.add("i-it")
    if what == "seen":
        siege.daemon.seen = explode
    elif what == "newest":
        siege.daemon.watch = BrokenWatch()  # type: ignore[assignment]
    else:
        setattr(siege.daemon.metrics, what, lambda *_, **__: explode())

    siege.run(12)

    assert siege.stops == [ID]


class BrokenWatch:
    def newest(self, resource: ResourceId) -> None:
        raise StoreError("the disk is full")


def test_failing_cycles_are_counted_even_by_a_counter_that_fails(siege: Siege) -> None:
    siege.daemon.metrics.cycle_failed = explode  # type: ignore[method-assign]
    siege.fault = Fault(raise_store_error, 3)
    siege.add("i-it")

    siege.run(12)

    assert siege.stops == [ID]


# --- the configuration's files ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "etc"
    made.mkdir()
    (made / "reaper.toml").write_text(ENFORCING)
    return made


PROTECT = '\n[protect.run]\nids = ["i-it"]\nreason = "pre-training"\n'


def test_protection_written_beside_a_dangling_lock_link_is_noticed(folder: Path) -> None:
    os.symlink("ada@host.1234:1700000000", folder / ".#reaper.toml")
    live = LiveConfiguration(folder)

    (folder / "reaper.toml").write_text(ENFORCING + PROTECT)
    configuration, refused = live.current()

    assert refused is None
    assert [p.name for p in configuration.protections] == ["run"]


def test_dangling_link_that_would_be_read_is_a_refusal_and_its_end_is_noticed(folder: Path) -> None:
    live = LiveConfiguration(folder)
    os.symlink("/nowhere", folder / "more.toml")

    before = live.current()[1]
    (folder / "more.toml").unlink()

    assert "more.toml" in (before or "")
    assert live.current()[1] is None


@pytest.mark.parametrize("rubbish", [".reaper.toml.swp", "reaper.toml~", "#reaper.toml#", "4913"])
def test_files_an_editor_leaves_refuse_nothing(folder: Path, rubbish: str) -> None:
    live = LiveConfiguration(folder)
    (folder / rubbish).write_bytes(b"\x00b0VIM")

    assert live.current()[1] is None


def test_change_that_keeps_size_and_time_is_noticed(folder: Path) -> None:
    file = folder / "reaper.toml"
    live = LiveConfiguration(folder)
    was = file.stat()

    file.write_text(ENFORCING.replace('for = "10m"', 'for = "20m"'))
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))

    assert live.current()[0].policies[0].idle.idle_for == timedelta(minutes=20)


def test_address_in_a_file_of_its_own_is_read_anew(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "webhook"
    secret.write_text("https://example.org/old")
    (folder / "reaper.toml").write_text(ENFORCING + f'\n[channels.team]\nwebhook_file = "{secret}"\n')
    live = LiveConfiguration(folder)

    secret.write_text("https://example.org/new")

    assert live.current()[0].channels["team"].url == "https://example.org/new"


def test_what_our_own_reader_trips_over_is_refused_and_no_end_of_the_loop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveConfiguration(folder)
    monkeypatch.setattr(Path, "iterdir", lambda self: explode())

    assert "RuntimeError" in (live.current()[1] or "")


def half(file: Path) -> None:
    text = file.read_text()
    file.write_text(text[: len(text) // 2])


TROUBLES: list[tuple[str, Callable[[Path], object]]] = [
    ("half written", half), ("emptied", lambda f: f.write_text("")), ("gone", lambda f: f.unlink()),
    ("not readable as text", lambda f: f.write_bytes(b"\xff\xfe\x00")), ("a misspelt key", lambda f: f.write_text(f.read_text() + "\n[protects.x]\n")),
]  # fmt: skip


@pytest.mark.parametrize("trouble", [row[1] for row in TROUBLES], ids=[row[0] for row in TROUBLES])
def test_nothing_goes_while_the_newest_file_is_in_trouble_and_all_goes_on_after(siege: Siege, folder: Path, trouble: Callable[[Path], object]) -> None:
    text = ENFORCING.replace('"10m"', '"6m"').replace('warn = { for = "5m"', 'warn = { for = "5m"')
    (folder / "reaper.toml").write_text(text)
    live = LiveConfiguration(folder)
    siege.follow(live)
    siege.add("i-it")
    siege.run(30, lambda: (m := siege.mark("i-it")) is not None and m.stage is Stage.DUE)
    trouble(folder / "reaper.toml")

    for _ in range(3):
        siege.follow(live)
        siege.tick()
    before, withheld = list(siege.stops), {w.by for w in siege.results[-1].plan.withheld}
    (folder / "reaper.toml").write_text(text)
    siege.follow(live)
    siege.tick()

    assert before == []
    assert withheld == {"configuration"}
    assert siege.stops == [ID]


def test_protection_written_while_it_is_due_saves_it_and_holds_a_day_after_it_is_gone(siege: Siege, folder: Path) -> None:
    (folder / "reaper.toml").write_text(ENFORCING)
    live = LiveConfiguration(folder)
    siege.follow(live)
    siege.add("i-it")
    siege.run(30, lambda: (m := siege.mark("i-it")) is not None and m.stage is Stage.DUE)

    (folder / "reaper.toml").write_text(ENFORCING + PROTECT)
    siege.follow(live)
    siege.run(2)
    (folder / "reaper.toml").write_text(ENFORCING)
    siege.follow(live)
    siege.run(40)

    assert siege.stops == []
    assert "vanished" in siege.why("i-it")


# --- attempts left open, and undo ---------------------------------------------------------------------------------------


def open_stop(siege: Siege, *, called: bool) -> str:
    """A stop whose process died right before the call, or right after it; nobody looked at it since."""
    to_acting(siege)
    stop = siege.cloud.stop

    def dying(resource: ResourceId) -> None:
        if called:
            stop(resource)
        raise Crash

    siege.cloud.stop = dying  # type: ignore[method-assign]
    with pytest.raises(Crash):
        siege.run(2)
    siege.cloud.stop = stop  # type: ignore[method-assign]
    siege.restart()
    return siege.store.attempts(open_only=True)[0].id


def undo(siege: Siege, attempt_id: str) -> object:
    lease = siege.leader.renew()
    attempt = siege.store.attempt(attempt_id)
    assert lease is not None
    assert attempt is not None
    return siege.cycle.executor.start_again(attempt, siege.cycle.gather(siege.config), lease, 1, "ada")


def hours_later(siege: Siege) -> None:
    siege.daemon_up = False
    siege.clock.advance(timedelta(hours=5))
    siege.daemon_up = True


def test_machine_its_owner_stopped_hours_later_is_not_taken_for_our_stop(siege: Siege) -> None:
    attempt = open_stop(siege, called=False)
    hours_later(siege)
    siege.cloud.change(ID, state=InstanceState.STOPPED, changed_at=siege.clock.now() - HOUR)

    siege.run(1)

    assert siege.outcomes("i-it") == ["failed"]
    with pytest.raises(Withdrawn, match="not carried out"):
        undo(siege, attempt)


def test_machine_its_owner_started_and_stopped_while_we_were_away_is_not_started_by_an_undo(siege: Siege) -> None:
    attempt = open_stop(siege, called=True)
    siege.clock.advance(timedelta(minutes=4))
    siege.cloud.change(ID, state=InstanceState.STOPPED, launched_at=siege.clock.now() - 2 * MINUTE, changed_at=siege.clock.now() - MINUTE)

    siege.run(1)

    assert siege.outcomes("i-it") == ["failed"]
    with pytest.raises(Withdrawn, match="not carried out"):
        undo(siege, attempt)
    assert siege.cloud.verbs("start") == []


def test_stop_left_open_for_hours_is_closed_as_done_where_nobody_touched_it(siege: Siege) -> None:
    attempt = open_stop(siege, called=True)
    hours_later(siege)

    siege.run(1)

    assert siege.outcomes("i-it") == ["done"]
    undo(siege, attempt)
    assert siege.state_of("i-it") is InstanceState.RUNNING


def stopped_attempt(siege: Siege) -> str:
    to_acting(siege)
    siege.run(3)
    assert siege.stopped("i-it")
    return siege.store.attempts()[0].id


def test_second_undo_while_the_first_start_is_open_is_refused(siege: Siege) -> None:
    attempt = stopped_attempt(siege)
    siege.cloud.fail("start", AnswerLost("connection reset"))
    undo(siege, attempt)

    with pytest.raises(Withdrawn, match="not closed"):
        undo(siege, attempt)

    assert len(siege.cloud.verbs("start")) == 1


def test_undo_of_what_left_the_scope_is_refused(siege: Siege) -> None:
    attempt = stopped_attempt(siege)
    siege.config = quick(scope=Scope(Selector(tags={"team": ("web",)}), ("stop", "start"), given=True))

    with pytest.raises(Withdrawn, match="scope"):
        undo(siege, attempt)


def test_undo_that_is_held_up_between_read_and_call_starts_nothing(siege: Siege) -> None:
    attempt = stopped_attempt(siege)
    Meanwhile(siege, lambda: siege.clock.advance(timedelta(seconds=11)) and None)  # type: ignore[arg-type]
    assert siege.fault is not None
    siege.fault.armed = True

    with pytest.raises(Withdrawn, match="after the fresh read"):
        undo(siege, attempt)

    assert siege.cloud.verbs("start") == []
    assert siege.outcomes("i-it")[0] == Outcome.ABANDONED


def test_lease_of_the_past_saves_no_mark(siege: Siege) -> None:
    with pytest.raises(LeaseLost):
        siege.store.save_marks((), (), (), Lease(7, "nobody", siege.clock.now()))


def test_breaker_of_the_store_outlives_a_restart(siege: Siege) -> None:
    from reaper.service.fleet import write_jumps

    write_jumps(siege.store, (Jump((ID,), siege.clock.now(), siege.clock.now() + HOUR, "4 of 6"),))
    siege.restart()
    siege.add("i-it")

    siege.run(12)

    assert FleetWatch(siege.store)._jumps
    assert siege.stops == []
