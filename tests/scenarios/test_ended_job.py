"""Nights of training machines: a job that ended shuts its machine down early; a sweep, a next job or doubt does not. With the real agent's eyes."""

from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path

import pytest

from agent.jobs import Jobs
from agent.launchers import Launchers
from agent.readings import GpuReading
from reaper.model.mark import Stage
from reaper.model.policy import IdleTerms, JobEndedTerms, Warn
from reaper.model.resource import ResourceId
from reaper.model.schedule import DailyHours
from reaper.model.signal import Job, LoaderWindow, Observation, Person
from tests.agent.fakeproc import FakeMachine
from tests.scenarios.world import ACCOUNT, REGION, Life, World, configuration, policy

ID = ResourceId("aws", ACCOUNT, REGION, "instance", "i-it")
ALL_DAY = DailyHours(time(0), time(23, 59), "UTC")
TERMS = policy(
    idle=IdleTerms(timedelta(hours=6), 0.05, timedelta(hours=48)),
    warn=Warn(timedelta(hours=1), ALL_DAY),  # nothing is stopped in this hour for being idle
    job_ended=JobEndedTerms(timedelta(minutes=45), Warn(timedelta(minutes=30))),
)


class Trainer(Life):
    """A machine whose agent looks at a real process tree every minute. ``running``: its GPU processes."""

    __slots__ = ("jobs", "last_pid", "people", "processes", "running")

    def start(self, folder: Path) -> None:
        self.processes, self.running, self.last_pid, self.people = FakeMachine(folder), set(), 400, ()
        self.begin_agent()

    def begin_agent(self) -> None:
        self.jobs = Jobs(self.processes.procs, Launchers(self.processes.procs))

    def run(self, launcher: str | None = None) -> int:
        """One more process on its GPU, below a launcher or straight from the shell."""
        self.last_pid += 1
        if launcher is not None:
            self.processes.process(350, launcher, args=(launcher, "sweep.sh"))
        self.processes.process(self.last_pid, parent=350 if launcher is not None else 311, born_s=600.0 + self.last_pid)
        self.running.add(self.last_pid)
        return self.last_pid

    def end(self) -> None:
        for pid in self.running:
            self.processes.end(pid)
        self.running = set()

    def window(self, now: datetime, span: timedelta) -> Observation:
        self.load = 0.9 if self.running else 0.0
        seen = Life.window(self, now, span)
        told = self.jobs.look([GpuReading("GPU-0", processes=len(self.running), pids=tuple(self.running))], seen.up_s)
        jobs = None if told is None else tuple(
            Job(j.id, None if j.ended_s is None else seen.up_s - j.ended_s, j.launcher, j.launcher_known) for j in told
        )  # fmt: skip
        trees = (LoaderWindow("pid", 0.0, 0.9),) if self.running else ()
        return replace(seen, jobs=jobs, loaders=trees, people=self.people)


@pytest.fixture
def trainer(world: World, tmp_path: Path) -> Trainer:
    world.config = configuration(TERMS)
    life = world.add("i-it", Trainer(ID))
    assert isinstance(life, Trainer)
    life.start(tmp_path / "machine")
    life.run()
    world.run(20)
    return life


def minutes_to_stop(world: World, most: int = 300) -> int:
    return world.run(most, lambda: world.stopped("i-it"))


def test_job_that_ends_at_night_shuts_its_machine_down_after_its_own_term_and_warning(world: World, trainer: Trainer) -> None:
    trainer.end()
    minutes = minutes_to_stop(world)

    assert 45 + 30 <= minutes <= 45 + 30 + 5
    assert world.story("i-it") == ["nominated", "warned", "due", "intent", "accepted", "outcome"]
    assert "ended" in world.channel.told("warned")[0].because


def test_people_on_the_machine_are_named_in_the_warning_beside_its_owner(world: World, trainer: Trainer) -> None:
    trainer.people = (Person("mia", 1001, "login", 240.0),)
    trainer.end()
    minutes_to_stop(world)
    (message,) = world.channel.told("warned")

    assert (message.owner, message.people) == ("ada", ("mia (1001) is logged in, typed 4m ago",))


def test_without_the_term_the_end_of_a_job_is_no_cause(world: World, trainer: Trainer) -> None:
    world.config = configuration(replace(TERMS, job_ended=None))
    trainer.end()

    assert minutes_to_stop(world, 200) == 200


def test_sweep_whose_launcher_lives_is_left_alone_between_its_jobs(world: World, trainer: Trainer) -> None:
    trainer.end()
    for _ in range(3):
        trainer.run("bash")
        world.run(5)
        trainer.end()
        world.run(120)

    assert world.cloud.verbs() == []
    assert world.mark("i-it") is None


def test_sweep_that_sleeps_longer_than_idle_is_allowed_is_left_alone_and_stopped_once_it_is_over(world: World, trainer: Trainer) -> None:
    world.config = configuration(replace(TERMS, job_ended=None, idle=IdleTerms(timedelta(hours=1), 0.05, timedelta(hours=10)), warn=Warn(timedelta(minutes=10))))
    for _ in range(2):
        trainer.run("bash")
        world.run(5)
        trainer.end()
        world.run(300)
    spared = not world.stopped("i-it")
    trainer.processes.end(350)

    assert spared
    assert minutes_to_stop(world) <= 20


def test_sweep_that_is_over_ends_with_its_launcher(world: World, trainer: Trainer) -> None:
    trainer.run("bash")
    world.run(5)
    trainer.end()
    world.run(100)
    trainer.processes.end(350)
    minutes = minutes_to_stop(world)

    assert 45 + 30 <= minutes <= 45 + 30 + 5


def test_another_job_that_starts_saves_it(world: World, trainer: Trainer) -> None:
    trainer.end()
    world.run(60)
    warned = world.mark("i-it")
    trainer.run()
    world.run(2)
    after = world.mark("i-it")
    world.run(200)

    assert warned is not None
    assert after is None
    assert world.cloud.verbs() == []


def test_another_job_that_started_and_ended_begins_the_term_anew(world: World, trainer: Trainer) -> None:
    trainer.end()
    world.run(40)
    trainer.run()
    world.run(5)
    trainer.end()
    minutes = minutes_to_stop(world)

    assert minutes >= 45 + 30


def test_work_after_the_end_leaves_it_to_the_longer_term(world: World, trainer: Trainer) -> None:
    trainer.end()
    world.run(20)
    trainer.cpu = 0.6
    world.run(3)
    trainer.cpu = 0.01

    assert minutes_to_stop(world, 200) == 200


def test_agent_that_is_restarted_between_two_jobs_of_a_sweep_fakes_no_end(world: World, trainer: Trainer) -> None:
    trainer.end()
    trainer.run("bash")
    world.run(5)
    trainer.end()
    world.run(10)
    trainer.begin_agent()
    world.run(200)

    assert world.cloud.verbs() == []
    assert world.mark("i-it") is None


def test_agent_that_is_restarted_while_a_job_runs_sees_its_end(world: World, trainer: Trainer) -> None:
    trainer.begin_agent()
    world.run(10)
    trainer.end()

    assert 45 + 30 <= minutes_to_stop(world) <= 45 + 30 + 5


def test_agent_that_is_restarted_after_the_end_forgets_it_and_the_countdown_goes(world: World, trainer: Trainer) -> None:
    trainer.end()
    world.run(60)
    trainer.begin_agent()

    assert minutes_to_stop(world, 200) == 200
    assert world.mark("i-it") is None
    assert len(world.channel.told("cleared")) == 1


def test_shell_whose_state_cannot_be_seen_leaves_it_to_the_longer_term(world: World, trainer: Trainer) -> None:
    trainer.processes.process(311, "bash", parent=310, terminal=True, args=())
    trainer.end()

    assert minutes_to_stop(world, 200) == 200


def test_wait_served_for_the_end_of_the_job_is_not_used_for_another_cause(world: World, trainer: Trainer) -> None:
    trainer.end()
    world.run(200, lambda: (m := world.mark("i-it")) is not None and m.stage is Stage.DUE)
    trainer.begin_agent()  # the end is not known any more, and the machine has been idle for long
    world.config = configuration(replace(TERMS, idle=IdleTerms(timedelta(minutes=30), 0.05, timedelta(hours=48))))
    world.run(100)

    assert world.cloud.verbs() == []
    mark = world.mark("i-it")
    assert mark is not None
    assert (mark.cause, mark.waited) == ("gpu-idle", timedelta(0))
    assert len(world.channel.told("warned")) == 2


def test_end_that_counts_no_more_at_the_last_moment_withdraws_the_stop(world: World, trainer: Trainer) -> None:
    """Between the cycle's plan and the executor's fresh read a report comes that knows of no job, and the machine is idle long enough."""
    world.config = configuration(replace(TERMS, idle=IdleTerms(timedelta(minutes=60), 0.05, timedelta(hours=48))))
    trainer.end()
    world.run(200, lambda: (m := world.mark("i-it")) is not None and m.stage is Stage.DUE)
    done: list[bool] = []

    def before(method: str, resource: ResourceId | None) -> None:
        if method == "get" and not done:
            done.append(True)
            trainer.begin_agent()
            world.clock.advance(timedelta(seconds=2))
            world.report(trainer, timedelta(seconds=7))

    world.cloud.before = before
    world.run(2)
    withdrawn = [entry.because for entry in world.store.audit(resource=ID) if entry.kind.value == "withheld"]

    assert done
    assert world.cloud.verbs() == []
    assert any("no longer job-ended" in because for because in withdrawn)
