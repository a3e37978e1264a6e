"""Jobs: what they are, when one has ended, and that nothing unreadable ever ends one. Over a temporary /proc, and with real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest

from agent.job_memory import AWAY_S, JobMemory
from agent.jobs import FORGET_S, LOOK_S, MOST_ENDED_TOLD, MOST_JOBS, MOST_TOLD, Jobs
from agent.launchers import Launchers, only_keeps, runs_a_script
from agent.procs import Procs
from agent.readings import GpuReading, JobReading
from agent.state import STATUS, write_json
from tests.agent.doubles import BOOT, Lines
from tests.agent.fakeproc import DOOR, INIT, LOGIN, SHELL, FakeMachine

JOB = 400
BEAT_S = 5.0


class Watcher:
    """Looks at a machine once a beat. ``gpu``: the processes that the driver names."""

    def __init__(self, machine: FakeMachine, **more: Any) -> None:
        self.machine, self.now_s, self.gpu = machine, 1000.0, [JOB]
        nobodys = more.pop("nobodys", lambda pid: False)
        self.jobs = Jobs(machine.procs, Launchers(machine.procs, nobodys), **more)

    def look(self, processes: Optional[int] = -1, whole: bool = True) -> Optional[Tuple[JobReading, ...]]:
        """One beat later. ``processes``: how many the driver counts (as many as it names, unless given)."""
        self.now_s += BEAT_S
        count = len(self.gpu) if processes == -1 else processes
        return self.jobs.look([GpuReading("GPU-0", processes=count, pids=tuple(self.gpu))], self.now_s, whole)

    def after(self, seconds: float) -> JobReading:
        """The only job, so many seconds of beats later."""
        end = self.now_s + seconds
        while self.now_s < end:
            told = self.look()
        assert told is not None
        (job,) = told
        return job

    def over(self, seconds: float = 65.0) -> bool:
        job = self.after(seconds)
        return job.ended_s is not None and job.launcher is None and job.launcher_known is True


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    made = FakeMachine(tmp_path)
    made.process(JOB)
    return made


@pytest.fixture
def watcher(machine: FakeMachine) -> Watcher:
    made = Watcher(machine)
    made.look()
    return made


def end(watcher: Watcher, *pids: int) -> None:
    for pid in pids or (JOB,):
        watcher.machine.end(pid)
    watcher.gpu = [pid for pid in watcher.gpu if pid not in (pids or (JOB,))]


def test_job_of_a_login_lives_while_its_process_is_on_a_gpu(watcher: Watcher) -> None:
    assert watcher.look() == (JobReading("session-3.scope@500"),)


def test_job_has_ended_a_minute_after_its_last_process_left_and_not_before(watcher: Watcher) -> None:
    end(watcher)
    early = watcher.after(60.0)
    late = watcher.after(5.0)

    assert (early.ended_s, early.launcher, early.launcher_known) == (1010.0, None, None)
    assert (late.ended_s, late.launcher, late.launcher_known) == (1010.0, None, True)


def test_job_ends_with_the_last_of_its_processes(watcher: Watcher) -> None:
    watcher.machine.process(401)
    watcher.gpu = [JOB, 401]
    watcher.look()
    end(watcher)

    assert watcher.after(300.0).ended_s is None
    end(watcher, 401)
    assert watcher.over()


def test_agent_that_has_only_just_begun_knows_of_no_end(machine: FakeMachine) -> None:
    first = Watcher(machine)
    first.look()
    end(first)
    first.after(30.0)
    again = Watcher(machine)
    again.gpu = []

    assert again.look() == ()
    assert again.look() == ()


def test_agent_that_begins_anew_knows_a_living_job_by_the_same_name(watcher: Watcher) -> None:
    assert Watcher(watcher.machine).look() == watcher.look()


# --- over a restart of the agent ---


@pytest.fixture
def restart(machine: FakeMachine, tmp_path: Path, log: Lines) -> Any:
    """Gives an agent with a memory; each next one comes so many seconds after the last look of the one before, in this boot or another."""
    now_s = [1000.0]

    def made(away_s: float = 3.0, boot: str = BOOT, nobodys: Any = lambda pid: False) -> Watcher:
        write_json(tmp_path / STATUS, {"boot_id": BOOT, "written_boot_s": now_s[0]}, log)
        watcher = Watcher(machine, memory=JobMemory(tmp_path, boot, log), nobodys=nobodys)
        watcher.now_s = now_s[0] + away_s
        look = watcher.look

        def looks(*arguments: Any, **more: Any) -> Any:
            told = look(*arguments, **more)
            now_s[0] = watcher.now_s
            return told

        watcher.look = looks  # type: ignore[method-assign]
        return watcher

    return made


def test_end_that_was_seen_survives_a_restart_of_the_agent(restart: Any) -> None:
    first = restart()
    first.look()
    end(first)
    (before,) = [first.after(300.0)]
    second = restart()
    second.gpu = []

    assert second.look() == (before,)
    assert before.ended_s is not None
    assert before.launcher_known is True


def test_job_that_ended_while_the_agent_was_away_has_ended_when_it_came_back(restart: Any) -> None:
    first = restart()
    first.look()
    end(first)
    second = restart()
    second.gpu = []
    (job,) = second.look() or ()
    back_s = second.now_s
    late = second.after(65.0)

    assert (job.ended_s, job.launcher_known) == (back_s, None)  # and not before: nobody saw it
    assert (late.ended_s, late.launcher_known) == (job.ended_s, True)


def test_living_job_is_the_same_one_after_a_restart(restart: Any, machine: FakeMachine) -> None:
    first = restart()
    (before,) = first.look() or ()
    machine.process(SHELL, "bash", parent=DOOR, terminal=True, args=("-bash",), born_s=999.0)  # its parent by that number is another one now
    second = restart()

    assert second.look() == (before,)


def test_launcher_that_lives_on_keeps_a_job_over_a_restart_and_its_end_counts_from_when_it_is_seen_to_be_gone(restart: Any, machine: FakeMachine) -> None:
    machine.process(390, "sweep.sh", args=("/bin/bash", "./sweep.sh"))
    machine.process(JOB, parent=390)
    first = restart()
    first.look()
    end(first)
    kept = first.after(300.0)
    second = restart()
    second.gpu = []
    still = second.after(30.0)
    machine.end(390)
    third = restart()
    third.gpu = []
    (gone,) = third.look() or ()

    assert (kept.launcher, still.launcher) == ("sweep.sh", "sweep.sh")
    assert (gone.launcher, gone.launcher_known, gone.ended_s) == (None, True, third.now_s)


def test_ancestor_outside_its_group_is_remembered_over_a_restart(restart: Any, machine: FakeMachine) -> None:
    """A launcher in another control group can only be told by who its child was, which nobody can see afterwards."""
    machine.process(390, "torchrun", cgroup="/system.slice/run-7.scope", session=390)
    machine.process(JOB, parent=390)
    first = restart()
    first.look()
    end(first)
    second = restart()
    second.gpu = []

    assert second.after(120.0).launcher == "torchrun"


def test_long_absence_lets_every_end_count_from_now(restart: Any) -> None:
    """Another job may have run in the same login meanwhile."""
    first = restart()
    first.look()
    end(first)
    first.after(300.0)
    second = restart(away_s=AWAY_S + 60.0)
    second.gpu = []
    (job,) = second.look() or ()

    assert job.ended_s == second.now_s


def test_jobs_of_another_boot_are_not_remembered(restart: Any) -> None:
    first = restart()
    first.look()
    end(first)
    first.after(300.0)
    second = restart(boot="another-boot")
    second.gpu = []

    assert second.look() == ()


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"boot_id": "%s"}' % BOOT, '{"boot_id": "%s", "jobs": [{}, 3, {"key": "k", "label": null}]}' % BOOT, '{"boot_id": "%s", "jobs": {}}' % BOOT],
)
def test_memory_of_jobs_that_cannot_be_read_is_none(restart: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "jobs.json").write_text(text)
    watcher = restart()
    watcher.gpu = []

    assert watcher.look() == ()


def test_first_look_without_the_driver_ends_no_living_job(restart: Any) -> None:
    restart().look()
    second = restart()

    assert second.look(processes=None) is None
    assert second.look() == (JobReading("session-3.scope@500"),)


def test_memory_of_jobs_is_written_when_something_happens_and_not_at_every_beat(restart: Any, tmp_path: Path) -> None:
    watcher = restart()
    watcher.look()
    written = (tmp_path / "jobs.json").stat().st_mtime_ns
    for _ in range(20):
        watcher.look()
    quiet = (tmp_path / "jobs.json").stat().st_mtime_ns
    end(watcher)
    watcher.look()

    assert quiet == written
    assert (tmp_path / "jobs.json").stat().st_mtime_ns > written


# --- launchers ---

LIVING: Dict[str, Dict[str, Any]] = {
    "shell_that_runs_a_sweep": {"name": "bash", "args": ("bash", "sweep.sh"), "terminal": True},
    "shell_given_a_command": {"name": "bash", "args": ("bash", "-lc", "for i in 1 2; do python t.py; done"), "terminal": True},
    "shell_that_reads_a_script_from_a_pipe": {"name": "bash", "args": ("bash",), "terminal": True, "stdin": "pipe:[77]"},
    "shell_without_a_terminal": {"name": "sh", "args": ("sh",)},
    "shell_in_the_background": {"name": "bash", "args": ("bash",), "terminal": True, "foreground": 999},
    "shell_that_computes": {"name": "zsh", "args": ("zsh",), "terminal": True, "state": "R"},
    "shell_of_a_script_through_env": {"name": "sweep.sh", "args": ("/bin/bash", "./sweep.sh")},
    "torchrun": {"name": "torchrun"},
    "accelerate": {"name": "accelerate"},
    "python_that_spawns": {"name": "python3"},
    "ray": {"name": "raylet"},
    "slurm_step": {"name": "slurmstepd"},
    "make": {"name": "make"},
    "process_with_an_unprintable_name": {"name": "\x1b[2J\n) S 1"},
    "shell_that_loops_over_a_job_in_a_container": {"name": "sh", "args": ("sh", "-c", "while true; do python t.py; sleep 600; done"), "namespaced": 1},
    "shell_that_reads_from_a_pipe_and_has_a_child": {"name": "bash", "args": ("bash",), "stdin": "pipe:[77]", "namespaced": 1, "children": (7,)},
    "shell_that_reads_from_a_pipe_and_is_not_its_containers_first": {"name": "bash", "args": ("bash",), "stdin": "pipe:[77]", "children": ()},
    "sleep_in_a_script": {"name": "sleep", "args": ("sleep", "600")},
}  # fmt: skip


@pytest.mark.parametrize("name", LIVING)
@pytest.mark.parametrize("where", ["ancestor", "member"])
def test_job_whose_launcher_lives_has_not_ended(machine: FakeMachine, name: str, where: str) -> None:
    machine.process(350, **LIVING[name], **({"cgroup": "/system.slice/other.service"} if where == "ancestor" else {}))
    machine.process(JOB, parent=350 if where == "ancestor" else SHELL)
    watcher = Watcher(machine)
    watcher.look()
    end(watcher)
    job = watcher.after(600.0)

    assert (job.launcher, job.launcher_known) == (LIVING[name]["name"], True)


@pytest.mark.parametrize(
    "keeps",
    [
        {"name": "tmux: server"}, {"name": "tmux: client"}, {"name": "screen"}, {"name": "SCREEN"}, {"name": "sshd"}, {"name": "sshd-session"},
        {"name": "systemd"}, {"name": "su"}, {"name": "sudo"}, {"name": "login"}, {"name": "containerd-shim"}, {"name": "tini"},
        {"name": "bash", "args": ("bash", "--init-file", "/opt/code/init.sh", "-i"), "terminal": True},
        {"name": "zsh", "args": ("-zsh",), "terminal": True}, {"name": "fish", "args": ("fish", "-l"), "terminal": True},
        {"name": "python", "state": "Z"},
        {"name": "sleep", "args": ("sleep", "infinity"), "namespaced": 1},
        {"name": "sleep", "args": ("sleep", "infinity"), "parent": DOOR},
        {"name": "sh", "args": ("sh", "-c", "while true; do sleep 1000; done"), "namespaced": 1},
        {"name": "sh", "args": ("sh", "-c", "while true; do sleep 1000; done"), "namespaced": 1, "state": "R"},
        {"name": "bash", "args": ("bash",), "stdin": "pipe:[77]", "namespaced": 1, "children": ()},
    ],
    ids=lambda keeps: "-".join(str(v) for v in keeps.values()),
)  # fmt: skip
def test_what_only_keeps_others_is_no_launcher(machine: FakeMachine, keeps: Dict[str, Any]) -> None:
    machine.process(350, **keeps)
    machine.process(JOB, parent=350)
    watcher = Watcher(machine)
    watcher.look()
    end(watcher)

    assert watcher.over()


def test_shell_that_runs_something_in_its_foreground_is_a_launcher_until_it_is_back_at_its_prompt(watcher: Watcher) -> None:
    end(watcher)
    watcher.machine.process(SHELL, "bash", parent=DOOR, terminal=True, args=("-bash",), foreground=4711)
    looping = watcher.after(120.0)
    watcher.machine.process(SHELL, "bash", parent=DOOR, terminal=True, args=("-bash",))

    assert looping.launcher == "bash"
    assert watcher.over(LOOK_S)


def test_sweep_starts_one_process_after_the_other_and_is_one_job_throughout(watcher: Watcher) -> None:
    machine = watcher.machine
    machine.process(350, "bash", args=("bash", "sweep.sh"), terminal=True)
    ids = set()
    for n in range(5):
        end(watcher, JOB + n)
        between = watcher.after(90.0)
        machine.process(JOB + n + 1, parent=350, born_s=600.0 + n)
        watcher.gpu = [JOB + n + 1]
        (living,) = watcher.look() or ()
        ids |= {between.id, living.id}
        assert (between.launcher, living.ended_s) == ("bash", None)

    assert ids == {"session-3.scope@500"}


def test_job_ends_with_its_launcher_where_that_comes_later(watcher: Watcher) -> None:
    watcher.machine.process(350, "bash", args=("bash", "sweep.sh"))
    end(watcher)
    waiting = watcher.after(600.0)
    watcher.machine.end(350)
    gone_s = watcher.now_s
    job = watcher.after(2 * LOOK_S)

    assert waiting.ended_s == 1010.0
    assert (job.launcher, job.launcher_known) == (None, True)
    assert job.ended_s is not None
    assert job.ended_s >= gone_s


def test_process_that_left_its_gpu_and_lives_on_keeps_its_job(watcher: Watcher) -> None:
    watcher.gpu = []

    assert watcher.after(600.0).launcher == "python"


def test_next_job_of_the_same_login_is_another_one(watcher: Watcher) -> None:
    end(watcher)
    assert watcher.over()
    watcher.machine.process(401, born_s=900.0)
    watcher.gpu = [401]

    assert watcher.look() == (JobReading("session-3.scope@900"),)


def test_launcher_that_comes_back_to_an_ended_job_keeps_it_and_counts_anew(watcher: Watcher) -> None:
    end(watcher)
    assert watcher.over(120.0)
    watcher.machine.process(360, "bash", args=("bash", "next.sh"))
    assert watcher.after(4 * LOOK_S + BEAT_S).launcher == "bash"
    watcher.machine.end(360)
    job = watcher.after(4 * LOOK_S)

    assert job.ended_s is not None
    assert job.ended_s > 1100.0


def test_number_of_an_ended_ancestor_that_is_anothers_now_is_not_it(machine: FakeMachine) -> None:
    machine.process(350, "bash", args=("bash", "sweep.sh"), cgroup="/system.slice/other.service")
    machine.process(JOB, parent=350)
    watcher = Watcher(machine)
    watcher.look()
    end(watcher)
    machine.process(350, "postgres", cgroup="/system.slice/other.service", born_s=990.0)

    assert watcher.over()


def test_number_of_an_ended_gpu_process_that_is_anothers_now_is_a_new_job(watcher: Watcher) -> None:
    watcher.machine.process(JOB, cgroup="/system.slice/serve.service", born_s=1004.0)

    assert {job.id: job.ended_s for job in watcher.look() or ()} == {"session-3.scope@500": 1010.0, "serve.service@1004": None}


def test_nobodys_work_is_no_launcher(machine: FakeMachine) -> None:
    machine.process(350, "dcgm-exporter")
    watcher = Watcher(machine, nobodys=lambda pid: pid == 350)
    watcher.look()
    end(watcher)

    assert watcher.over()


def test_agent_itself_is_no_launcher(machine: FakeMachine) -> None:
    machine.process(os.getpid(), "python")
    watcher = Watcher(machine)
    watcher.look()
    end(watcher)

    assert watcher.over()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sleep infinity", True), ("tail -f /dev/null 2>&1", True), ("exec tail -F /var/log/app > /dev/null", True), ("while :; do sleep 2073600; done", True),
        ("trap : TERM INT; sleep infinity & wait", True), ("trap '' TERM\nwhile true; do\n  sleep 30\ndone\n", True), ("trap 'kill 1' TERM; cat", True),
        ("echo Container started\ntrap \"exit 0\" 15\n\nexec \"$@\"\nwhile sleep 1 & wait $!; do :; done", True),
        ("while true; do python train.py; sleep 600; done", False), ("sleep 3600 && ./evaluate", False), ("sleep $(./next)", False), ("sleep `./next`", False),
        ("while true; do sleep 60; [ -x /job ] && /job; done", False), ("tail -f log | ./consume", False), ("until ./train; do sleep 5; done", False),
        ("trap './save' TERM; sleep infinity", False), ("$COMMAND", False), ("sleep 5 # comes again\n./train", False), ("sleep() { ./train; }; sleep 5", False),
        ("for n in 1 2; do sleep 5; done", False), ("", False), (" ; ", False),
    ],
)  # fmt: skip
def test_command_that_only_keeps_a_container_alive_is_one_of_which_every_word_is_known(text: str, expected: bool) -> None:
    assert only_keeps(("sh", "-c", text)) is expected
    assert only_keeps(("bash", "-lc", "--", text)) is expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("sh", "-c", 'exec "$@"; sleep 9', "-"), True), (("sh", "-c", 'exec "$@"; sleep 9', "-", "./train"), False),
        (("bash", "-o", "pipefail", "-c", "sleep 9"), True), (("bash", "sleep.sh"), False), (("bash", "-c"), False), (("bash",), False), ((), False),
    ],
)  # fmt: skip
def test_what_a_command_was_given_counts_as_well(arguments: Tuple[str, ...], expected: bool) -> None:
    assert only_keeps(arguments) is expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("bash", "sweep.sh"), True), (("bash", "-x", "sweep.sh"), True), (("bash", "-c", "x"), True), (("sh", "-lc", "x"), True),
        (("fish", "--command=x"), True), (("bash", "-o", "vi", "run.sh"), True), (("bash", "--", "run.sh"), True), (("bash", ""), True),
        (("-bash",), False), (("bash", "-l", "-i"), False), (("bash", "--rcfile", "/x/rc", "-i"), False), (("bash", "-o", "vi"), False),
        (("zsh", "--login"), False),
    ],
)  # fmt: skip
def test_shell_was_given_something_to_run(arguments: Tuple[str, ...], expected: bool) -> None:
    assert runs_a_script(arguments) is expected


# --- what cannot be seen ---


def unlisted(machine: FakeMachine) -> None:
    """Its control group is not where groups are, and the list of processes is hidden."""
    shutil.rmtree(machine.cgroup)
    shutil.rmtree(machine.proc / "1")


def foreign(machine: FakeMachine) -> None:
    (machine.folder(LOGIN) / "cgroup.procs").write_text("0\n%d\n" % SHELL)


def crowded(machine: FakeMachine) -> None:
    (machine.folder(LOGIN) / "cgroup.procs").write_text("".join("%d\n" % pid for pid in range(10_000, 12_000)))


def nameless_shell(machine: FakeMachine) -> None:
    machine.process(SHELL, "bash", parent=DOOR, terminal=True, args=())


def shell_with_hidden_input(machine: FakeMachine) -> None:
    machine.process(SHELL, "bash", parent=DOOR, terminal=True, args=("-bash",), stdin=None)


UNREADABLE = [unlisted, foreign, crowded, nameless_shell, shell_with_hidden_input]


@pytest.mark.parametrize("lose", UNREADABLE, ids=lambda lose: lose.__name__)
def test_launcher_that_cannot_be_looked_for_is_not_known_and_never_none(machine: FakeMachine, lose: Any) -> None:
    watcher = Watcher(machine)
    watcher.look()
    if lose is unlisted:
        lose(machine)
        machine.process(JOB)  # found again where nothing lists it
        shutil.rmtree(machine.cgroup)
        watcher = Watcher(machine)
        watcher.look()
    end(watcher)
    if lose is not unlisted:
        lose(machine)
    job = watcher.after(600.0)

    assert (job.launcher, job.launcher_known) == (None, False)


def test_job_with_a_hidden_ancestor_is_not_known_to_have_ended(machine: FakeMachine) -> None:
    shutil.rmtree(machine.proc / str(DOOR))
    watcher = Watcher(machine)
    watcher.look()
    end(watcher)

    assert watcher.after(600.0).launcher_known is False


def test_launcher_found_is_found_whatever_else_is_hidden(machine: FakeMachine) -> None:
    machine.process(350, "torchrun")
    shutil.rmtree(machine.proc / str(DOOR))
    watcher = Watcher(machine)
    watcher.look()
    end(watcher)

    assert watcher.after(600.0).launcher == "torchrun"


def test_end_counts_from_when_the_launcher_was_known_to_be_gone(watcher: Watcher) -> None:
    end(watcher)
    nameless_shell(watcher.machine)
    watcher.after(600.0)
    watcher.machine.process(SHELL, "bash", parent=DOOR, terminal=True, args=("-bash",))
    job = watcher.after(4 * LOOK_S)

    assert job.launcher_known is True
    assert job.ended_s is not None
    assert job.ended_s > 1600.0


def test_process_that_the_driver_names_and_we_cannot_see_is_a_job_of_which_nothing_is_known(watcher: Watcher) -> None:
    end(watcher)
    watcher.gpu = [9999]
    watcher.look()
    living = {job.id: job for job in watcher.look() or ()}["hidden-9999"]
    watcher.gpu = []
    for _ in range(100):
        told = watcher.look()
    ended = {job.id: job for job in told or ()}["hidden-9999"]

    assert living.ended_s is None
    assert (ended.ended_s is not None, ended.launcher_known) == (True, False)


def test_process_that_ended_as_it_was_listed_is_no_job(watcher: Watcher) -> None:
    watcher.gpu = [JOB, 9999]
    watcher.look()
    watcher.gpu = [JOB]

    assert [job.id for job in watcher.look() or ()] == ["session-3.scope@500"]


def test_entry_that_makes_no_sense_is_somebody(watcher: Watcher) -> None:
    watcher.look(processes=2)

    assert "hidden-0" in [job.id for job in watcher.look(processes=2) or ()]


@pytest.mark.parametrize(("processes", "whole"), [(None, True), (1, False)], ids=["a list that cannot be read", "a gpu that is not handed out"])
def test_jobs_are_unknown_while_one_could_be_hidden(watcher: Watcher, processes: Optional[int], whole: bool) -> None:
    assert watcher.look(processes, whole) is None


def test_blind_beats_neither_end_a_living_process_nor_keep_a_dead_one(watcher: Watcher) -> None:
    watcher.gpu = []
    for _ in range(30):
        watcher.look(processes=None)
    watcher.gpu = [JOB]
    lived = watcher.look()
    watcher.gpu = []
    watcher.machine.end(JOB)
    for _ in range(30):
        watcher.look(processes=None)
    (ended,) = watcher.look() or ()

    assert lived == (JobReading("session-3.scope@500"),)
    assert ended.launcher_known is True


# --- control groups and sessions ---

GROUPS = [
    ("docker, version 2", "", "/system.slice/docker-%s.scope" % ("ab12" * 16), "docker-ab12ab12ab12.scope@500"),
    ("docker, version 1", "devices", "/docker/%s" % ("ab12" * 16), "ab12ab12ab12@500"),
    ("systemd, version 1", "name=systemd", "/system.slice/train.service", "train.service@500"),
    ("pod", "", "/kubepods.slice/kubepods-pod1.slice/cri-containerd-%s.scope" % ("0f" * 32), "cri-containerd-0f0f0f0f0f0f.scope@500"),
    ("slurm, version 1", "freezer", "/slurm/uid_1000/job_17/step_0/task_0", "job_17@500"),
    ("slurm, version 2", "", "/system.slice/slurmstepd.scope/job_17/step_0/user/task_0", "job_17@500"),
    ("none but the root", "", "/", "session-311@500"),
    ("only a slice", "", "/user.slice", "session-311@500"),
    ("of another namespace", "", "/../other/x", "session-311@500"),
    ("no line at all", "memory", "/something", "session-311@500"),
]


@pytest.mark.parametrize(("hierarchy", "cgroup", "name"), [row[1:] for row in GROUPS], ids=[row[0] for row in GROUPS])
def test_job_is_its_control_group_else_its_session(tmp_path: Path, hierarchy: str, cgroup: str, name: str) -> None:
    machine = FakeMachine(tmp_path, hierarchy)
    machine.process(JOB, cgroup=cgroup)
    watcher = Watcher(machine)
    (job,) = watcher.look() or ()
    end(watcher)

    assert job.id == name
    assert watcher.over()


@pytest.mark.parametrize(("hierarchy", "cgroup"), [row[1:3] for row in GROUPS if "namespace" not in row[0]], ids=[row[0] for row in GROUPS if "namespace" not in row[0]])
def test_launcher_is_found_in_any_kind_of_group(tmp_path: Path, hierarchy: str, cgroup: str) -> None:
    machine = FakeMachine(tmp_path, hierarchy)
    machine.process(350, "torchrun", parent=INIT, cgroup=cgroup)
    machine.process(JOB, cgroup=cgroup)
    watcher = Watcher(machine)
    watcher.look()
    end(watcher)

    assert watcher.after(200.0).launcher == "torchrun"


def test_container_that_is_gone_with_its_control_group_has_ended(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    group = "/system.slice/docker-%s.scope" % ("ab12" * 16)
    machine.process(JOB, cgroup=group, parent=INIT)
    watcher = Watcher(machine)
    watcher.look()
    end(watcher)
    shutil.rmtree(machine.folder(group))

    assert watcher.over()


def test_all_steps_of_a_slurm_job_are_one_job(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    base = "/system.slice/slurmstepd.scope/job_17/"
    machine.process(JOB, cgroup=base + "step_0/user/task_0")
    machine.process(350, "slurmstepd", parent=INIT, cgroup=base + "step_batch/slurm")
    watcher = Watcher(machine)
    watcher.look()
    end(watcher)

    assert watcher.after(200.0).launcher == "slurmstepd"


# --- bounds ---


def test_memory_is_bounded_and_what_keeps_the_machine_goes_last(machine: FakeMachine) -> None:
    watcher = Watcher(machine)
    watcher.gpu = [9999]
    watcher.look()
    watcher.look()
    for n in range(MOST_JOBS + 10):
        watcher.machine.process(1000 + n, cgroup="/system.slice/run-%d.service" % n, parent=INIT)
        watcher.gpu = [1000 + n]
        watcher.look()
        end(watcher, 1000 + n)
        for _ in range(14):
            watcher.look()
    told = watcher.look() or ()

    assert len(watcher.jobs._jobs) <= MOST_JOBS
    assert [job.id for job in told if job.launcher_known is False] == ["hidden-9999"]
    assert len([job for job in told if job.launcher_known]) == MOST_ENDED_TOLD
    assert told[1].id.startswith("run-%d.service" % (MOST_JOBS + 9))


def test_report_names_so_many_jobs_and_no_more(machine: FakeMachine) -> None:
    watcher = Watcher(machine)
    watcher.gpu = list(range(1000, 1100))
    for pid in watcher.gpu:
        machine.process(pid, cgroup="/system.slice/run-%d.service" % pid)

    assert len(watcher.look() or ()) == MOST_TOLD


def test_end_is_forgotten_after_days(watcher: Watcher) -> None:
    end(watcher)
    watcher.after(65.0)
    watcher.now_s += FORGET_S

    assert watcher.look() == ()


# --- real processes ---


def named(pid: int) -> str:
    return Path("/proc/%d/comm" % pid).read_text().strip()


def until(condition: Any, within_s: float = 20.0) -> None:
    """Real processes take the time they take."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.01)


class RealSweep:
    """A sweep script of its own session and without a living parent, steered by the files that it waits for."""

    SCRIPT = """
echo $$ > shell
for n in 1 2; do
  sh -c 'echo $$ > child; while [ ! -e end-'$n' ]; do sleep 0.02; done; rm child'
  echo > between-$n
  while [ ! -e go-$n ]; do sleep 0.02; done
done
"""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sweep.sh").write_text(self.SCRIPT)
        subprocess.run(["setsid", "-f", "bash", "sweep.sh"], cwd=folder, stdin=subprocess.DEVNULL, check=True)
        self.shell, self.child = self.number("shell"), self.number("child")

    def number(self, name: str) -> int:
        until(lambda: (self.folder / name).is_file() and (self.folder / name).read_text().strip())
        return int((self.folder / name).read_text())

    def say(self, name: str) -> None:
        (self.folder / name).write_text("")


def test_real_sweep_is_one_job_until_its_script_is_gone(tmp_path: Path) -> None:
    sweep = RealSweep(tmp_path)
    procs = Procs(cgroup=tmp_path / "no-cgroups")  # its session stands for the job, so that the group of the tests does not
    stat = procs.stat(sweep.child)
    assert stat is not None
    keepers = tuple(named(pid) for pid, _ in Launchers(procs).ancestors(sweep.shell).chain)
    procs.group_path = lambda pid: None  # type: ignore[method-assign]
    jobs = Jobs(procs, Launchers(procs, inits=keepers), settle_s=0.05)
    now_s = 1e6

    def look(*pids: int) -> Sequence[JobReading]:
        nonlocal now_s
        now_s += 1.0
        return jobs.look([GpuReading("GPU-0", processes=len(pids), pids=pids)], now_s) or ()

    (first,) = look(sweep.child)
    sweep.say("end-1")
    until(lambda: (tmp_path / "between-1").exists())
    between: List[JobReading] = [look()[0] for _ in range(3)]
    sweep.say("go-1")
    second_child = sweep.number("child")
    (second,) = look(second_child)
    sweep.say("end-2")
    until(lambda: (tmp_path / "between-2").exists())
    sweep.say("go-2")
    until(lambda: procs.stat(sweep.shell) is None)
    look()
    (over,) = look()

    assert stat.parent == sweep.shell
    assert (first.ended_s, second.ended_s, second.id) == (None, None, first.id)
    assert {job.launcher for job in between} == {"bash"}
    assert (over.launcher, over.launcher_known, over.ended_s is not None) == (None, True, True)


# --- containers that live on while nothing of theirs is on a GPU ---


class RealContainer:
    """
    Real processes in a pid namespace, as a detached container has them, below one that stands for the machine's init. Its control
    group is a made-up one, which lists who lives in there.
    """

    PATH = "/system.slice/docker-%s.scope" % ("5" * 64)

    def __init__(self, folder: Path, *first: str) -> None:
        self.folder, self.group = folder, folder / "cgroup" / self.PATH.strip("/")
        self.group.mkdir(parents=True)
        self.outer = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", *first], cwd=folder, stdin=subprocess.PIPE, start_new_session=True)
        until(lambda: self.below(self.outer.pid))
        (self.first,) = self.below(self.outer.pid)
        until(lambda: named(self.first) != "unshare")
        self.procs = Procs(cgroup=folder / "cgroup")
        self.procs.group_path = lambda pid: ("", self.PATH)  # type: ignore[method-assign]
        keepers = ("unshare", *(named(pid) for pid, _ in Launchers(self.procs).ancestors(self.outer.pid).chain))
        self.jobs, self.now_s = Jobs(self.procs, Launchers(self.procs, inits=keepers), settle_s=0.05), 1e6

    def below(self, pid: int) -> List[int]:
        try:
            return [int(child) for child in Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()]
        except OSError:
            return []

    def living(self) -> List[int]:
        found = [self.first]
        for pid in found:
            found += self.below(pid)
        return found

    def look(self, *pids: int) -> Sequence[JobReading]:
        self.now_s += 20.0
        (self.group / "cgroup.procs").write_text("".join("%d\n" % pid for pid in self.living()))
        return self.jobs.look([GpuReading("GPU-0", processes=len(pids), pids=pids)], self.now_s) or ()

    def end(self) -> None:
        self.outer.kill()
        self.outer.wait()
        assert self.outer.stdin is not None
        self.outer.stdin.close()


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Callable[..., RealContainer]]:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    made: List[RealContainer] = []

    def start(*first: str) -> RealContainer:
        made.append(RealContainer(tmp_path, *first))
        return made[-1]

    yield start
    for one in made:
        one.end()


RUN = "while [ ! -e end ]; do sleep 0.02; done"


def test_real_shell_that_loops_over_a_job_in_a_detached_container_is_its_launcher_between_two_runs(container: Any) -> None:
    box = container("sh", "-c", "while true; do sh -c '%s; echo > ended'; sleep 600; done" % RUN)
    until(lambda: box.below(box.first))
    (job,) = box.below(box.first)
    (living,) = box.look(job)
    (box.folder / "end").touch()
    until(lambda: box.procs.stat(job) is None and box.below(box.first))
    between = [box.look()[0] for _ in range(3)]

    assert living.ended_s is None
    assert [(one.launcher, one.launcher_known) for one in between] == [("sh", True)] * 3


@pytest.mark.parametrize(
    "first",
    [
        ("sleep", "infinity"), ("tail", "-f", "/dev/null"), ("sh", "-c", "while true; do sleep 1000; done"), ("sh", "-c", "trap : TERM INT; sleep infinity & wait"),
        ("sh", "-c", 'echo started\ntrap "exit 0" 15\nexec "$@"\nwhile sleep 1 & wait $!; do :; done', "-"), ("bash", "-c", "while true; do sleep 0.01; done"), ("sh",), ("bash",),
    ],
    ids=["sleep", "tail", "loop", "trap", "devcontainer", "restless", "sh", "bash"],
)  # fmt: skip
def test_real_container_that_is_only_kept_alive_does_not_hold_its_last_job(container: Any, first: Tuple[str, ...]) -> None:
    box = container(*first)
    inside = subprocess.Popen(["nsenter", "--pid", "--target", str(box.first), "sh", "-c", RUN], cwd=box.folder)  # as `docker exec` does
    until(lambda: box.below(inside.pid))
    (job,) = box.below(inside.pid)
    (living,) = box.look(job)
    (box.folder / "end").touch()
    inside.wait()
    told = [box.look()[0] for _ in range(3)]

    assert living.ended_s is None
    assert [(one.ended_s is not None, one.launcher, one.launcher_known) for one in told[1:]] == [(True, None, True)] * 2


# --- containers that a shell starts one after the other ---

SHIM, FIRST, CLIENT, SWEEP = 500, 501, 510, 509
BOX = "/system.slice/docker-%s.scope"


def contained(machine: FakeMachine, pid: int = FIRST, number: int = 1, keeper: str = "containerd-shim") -> None:
    machine.process(SHIM, keeper, parent=INIT, cgroup="/system.slice/containerd.service")
    machine.process(pid, "python", parent=SHIM, cgroup=BOX % (str(number) * 64), session=pid)


def sweep(machine: FakeMachine, shell: str = "bash", **more: Any) -> None:
    """A script in the login that waits for `docker run`."""
    machine.process(SWEEP, shell, parent=SHELL, **{"args": ("bash", "sweep.sh"), "terminal": True, "state": "S", **more})
    machine.process(CLIENT, "docker", parent=SWEEP, args=("docker", "run", "--gpus", "all", "train"))


def in_a_container(machine: FakeMachine, *clients: int) -> Watcher:
    machine.end(JOB)
    watcher = Watcher(machine)
    watcher.gpu = [FIRST]
    watcher.look()
    assert watcher.jobs.wants_clients
    watcher.jobs.note_clients(clients)
    return watcher


def test_script_that_starts_containers_is_the_launcher_of_their_jobs(machine: FakeMachine) -> None:
    contained(machine)
    sweep(machine)
    watcher = in_a_container(machine, CLIENT)
    end(watcher, FIRST, CLIENT)

    assert not watcher.over()
    assert watcher.after(5.0).launcher == "bash"
    machine.end(SWEEP)
    assert watcher.over(120.0)


def test_shell_that_is_back_at_its_prompt_starts_no_further_container(machine: FakeMachine) -> None:
    contained(machine)
    machine.process(CLIENT, "docker", parent=SHELL)
    watcher = in_a_container(machine, CLIENT)
    end(watcher, FIRST, CLIENT)

    assert watcher.over()


def test_client_that_lives_may_start_the_next_one(machine: FakeMachine) -> None:
    contained(machine)
    machine.process(CLIENT, "docker-compose", parent=SHELL)
    watcher = in_a_container(machine, CLIENT)
    end(watcher, FIRST)

    assert not watcher.over()


def test_script_inside_another_container_is_seen_as_well(machine: FakeMachine) -> None:
    contained(machine)
    machine.process(600, "containerd-shim", parent=INIT, cgroup="/system.slice/containerd.service")
    machine.process(601, "bash", parent=600, cgroup=BOX % ("2" * 64), args=("bash", "sweep.sh"), session=601)
    machine.process(602, "podman", parent=601, cgroup=BOX % ("2" * 64), session=601)
    watcher = in_a_container(machine, 602)
    end(watcher, FIRST, 602)

    assert not watcher.over()


def test_client_whose_parents_are_hidden_leaves_the_launcher_unknown(machine: FakeMachine) -> None:
    contained(machine)
    machine.process(CLIENT, "docker", parent=9999)
    watcher = in_a_container(machine, CLIENT)
    end(watcher, FIRST, CLIENT)

    assert watcher.after(65.0).launcher_known is False


def test_next_container_of_a_sweep_finds_the_clients_that_were_told(machine: FakeMachine) -> None:
    contained(machine)
    sweep(machine)
    watcher = in_a_container(machine, CLIENT)
    end(watcher, FIRST)
    contained(machine, FIRST + 1, 2)
    watcher.gpu = [FIRST + 1]
    watcher.look()
    end(watcher, FIRST + 1, CLIENT)

    assert [job.launcher for job in told_after(watcher, 65.0)] == ["bash", "bash"]


def told_after(watcher: Watcher, seconds: float) -> Tuple[JobReading, ...]:
    for _ in range(int(seconds / BEAT_S)):
        told = watcher.look()
    assert told
    return told


def test_job_outside_of_containers_is_nothing_to_the_clients(machine: FakeMachine) -> None:
    sweep(machine)
    machine.process(JOB, cgroup="/system.slice/serve.service", session=JOB, parent=INIT)
    watcher = Watcher(machine)
    watcher.look()
    watcher.jobs.note_clients([CLIENT])
    end(watcher)

    assert watcher.over()


def test_clients_of_a_container_are_remembered_over_a_restart(machine: FakeMachine, tmp_path: Path, log: Lines) -> None:
    contained(machine)
    sweep(machine)
    watcher = Watcher(machine, memory=JobMemory(tmp_path, BOOT, log))
    watcher.gpu = [FIRST]
    watcher.look()
    watcher.jobs.note_clients([CLIENT])
    watcher.look()
    end(watcher, FIRST, CLIENT)
    watcher.look()
    again = Watcher(machine, memory=JobMemory(tmp_path, BOOT, log))
    again.gpu, again.now_s = [], watcher.now_s

    assert again.after(65.0).launcher == "bash"
