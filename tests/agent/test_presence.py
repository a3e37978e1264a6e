"""Who works here besides the GPUs: by doors, trees of processes and terminals, in a made-up /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from agent import at_work, doors
from agent.config import NOBODYS_WORK
from agent.host import nobodys_name
from agent.kernels import is_busy
from agent.presence import Presence
from agent.procs import Procs
from agent.readings import AtWorkReading, PresenceReading
from agent.report import AtWork
from agent.roster import IN_TURN, Roster
from tests.agent.fakeproc import DOOR, HZ, SHELL, SSHD, FakeMachine

UTC = 1_900_000_000.0
SECOND = HZ
USERS = {0: "root", 1000: "ada", 1001: "mia"}
SERVICE = "/system.slice/some.service"
EPOLL_WAIT = {"x86_64": 232, "aarch64": 22}
DOCKER = "/system.slice/docker-0123456789abcdef.scope"


class Seen:
    """A machine at 1,000 s of its boot clock, and what a look at it tells. Its one login types at pts/0."""

    def __init__(self, root: Path, **more: Any) -> None:
        self.machine, self.pts = FakeMachine(root), root / "pts"
        self.pts.mkdir()
        self.now_s = 1000.0
        self.presence = Presence(
            self.machine.procs, lambda uid: USERS.get(uid, str(uid)), nobodys_name(NOBODYS_WORK), self.pts, us=99, **{"busy": self._busy, **more}
        )
        self.kernels: Dict[int, Optional[bool]] = {}
        self.typed(0, 7200.0)
        self.shell()

    def _busy(self, procs: Procs, pid: int, name: str) -> Optional[bool]:
        return self.kernels.get(pid, False)

    def shell(self, **more: Any) -> None:
        self.machine.process(SHELL, "bash", parent=DOOR, **{"terminal": True, "args": ("-bash",), "stdin": None, **more})

    def typed(self, number: int, ago_s: float) -> None:
        path = self.pts / str(number)
        path.touch()
        at_s = UTC + self.now_s - 1000.0 - ago_s
        os.utime(path, (at_s, at_s))

    def look(self) -> PresenceReading:
        return self.presence.look(self.now_s, UTC + self.now_s - 1000.0)

    def later(self, by_s: float = 30.0) -> PresenceReading:
        self.now_s += by_s
        return self.look()


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path)


def only(reading: PresenceReading, kind: Optional[str] = None) -> AtWorkReading:
    (one,) = [one for one in reading.at_work if kind is None or one.kind == kind]
    return one


def kinds(reading: PresenceReading) -> List[str]:
    return sorted(one.kind for one in reading.at_work)


# --- sessions ---


def test_session_is_as_old_as_its_last_input_not_as_its_login(seen: Seen) -> None:
    one = only(seen.look())

    assert (one.kind, one.user, one.uid, one.name, one.idle_s, one.busy) == ("ssh", "ada", 1000, "bash", 7200.0, None)
    assert seen.look().unread == ()


def test_input_between_two_looks_is_as_fresh_as_the_terminal_says(seen: Seen) -> None:
    seen.look()
    seen.now_s += 30.0
    seen.typed(0, 12.0)

    assert only(seen.look()).idle_s == 12.0
    assert only(seen.later(60.0)).idle_s == 72.0


@pytest.mark.parametrize("step_s", [3600.0, -3600.0], ids=["forward", "back"])
def test_input_is_not_missed_when_the_wall_clock_is_set(seen: Seen, step_s: float) -> None:
    seen.look()
    seen.now_s += 30.0
    seen.typed(0, 5.0)  # stamped by the old clock, asked by the new one
    one = only(seen.presence.look(seen.now_s, UTC + 30.0 + step_s))

    assert one.idle_s == 0.0


def test_terminal_ahead_of_the_clock_counts_as_typed_now(seen: Seen) -> None:
    seen.typed(0, -9999.0)

    assert only(seen.look()).idle_s == 0.0


def test_session_that_has_always_been_there_is_seen_at_the_first_look(seen: Seen) -> None:
    seen.machine.process(SHELL, "bash", parent=DOOR, terminal=True, stdin=None, born_s=1.0)

    assert only(seen.look()).kind == "ssh"


def test_terminal_whose_time_cannot_be_read_is_not_nobody(seen: Seen) -> None:
    (seen.pts / "0").unlink()
    reading = seen.look()

    assert only(reading).idle_s is None
    assert reading.unread == ("when somebody typed into some terminals",)


def test_hidden_processes_are_not_nobody(seen: Seen) -> None:
    (seen.machine.proc / "1" / "stat").unlink()

    assert seen.look().unread == ("the processes of other users",)


def test_agent_in_a_container_of_its_own_sees_nobody_and_says_that_it_cannot(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    link = seen.machine.proc / "self" / "ns" / "pid"
    link.unlink()
    os.symlink("pid:[4026532000]", link)
    inside = Presence(seen.machine.procs, str, pts=seen.pts, us=99)

    assert inside.look(seen.now_s, UTC).unread == ("processes outside of the agent's own container",)


def test_nobody_is_seen_where_nobody_is(seen: Seen) -> None:
    seen.machine.end(SHELL)
    seen.machine.end(DOOR)
    seen.machine.process(400, "agetty", parent=1, terminal=True, uid=0, cgroup=SERVICE, stdin=None, session=400)
    seen.machine.process(401, "python3", parent=1, uid=0, cgroup=SERVICE)

    assert (seen.look().at_work, seen.later().at_work, seen.later().unread) == ((), (), ())


def test_session_without_a_terminal_counts_by_its_work_alone(seen: Seen) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, "rsync", parent=DOOR, session=400)

    assert seen.look().at_work == ()
    seen.machine.process(400, "rsync", parent=DOOR, session=400, ticks=12 * SECOND)
    one = only(seen.later())

    assert (one.kind, one.name, one.cpu_s, one.idle_s) == ("ssh", "rsync", 12.0, None)


def test_console_login_is_a_session(seen: Seen, tmp_path: Path) -> None:
    seen.machine.end(SHELL)
    (tmp_path / "tty1").touch()
    os.utime(tmp_path / "tty1", (UTC - 40.0, UTC - 40.0))
    seen.machine.process(400, "login", parent=1, uid=0, cgroup=SERVICE)
    seen.machine.process(401, "bash", parent=400, terminal=True, stdin=None, session=401, number=0)
    stat = seen.machine.proc / "401" / "stat"
    stat.write_text(stat.read_text().replace("34816", str(os.makedev(4, 1))))

    assert [(one.kind, one.idle_s) for one in seen.look().at_work] == [("console", 40.0)]


@pytest.mark.parametrize("keeper", ["tmux: server", "screen", "SCREEN", "zellij"])
def test_shell_kept_by_a_multiplexer_shows_input_and_work(seen: Seen, keeper: str) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, keeper, parent=1, session=400)
    seen.machine.process(401, "bash", parent=400, session=401, terminal=True, number=3, stdin=None, foreground=402)
    seen.machine.process(402, "preprocess", parent=401, session=401, group=402)
    seen.typed(3, 90000.0)
    seen.look()
    seen.machine.process(402, "preprocess", parent=401, session=401, group=402, ticks=29 * SECOND)
    one = only(seen.later())

    assert (one.kind, one.name, one.cpu_s, one.idle_s) == ("tmux" if "tmux" in keeper else "screen", "preprocess", 29.0, 90030.0)


def test_forgotten_shell_in_a_multiplexer_is_shown_and_does_nothing(seen: Seen) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, "tmux: server", parent=1, session=400)
    seen.machine.process(401, "bash", parent=400, session=401, terminal=True, number=3, stdin=None)
    seen.typed(3, 90000.0)
    seen.look()
    one = only(seen.later())

    assert (one.cpu_s, one.bytes, one.idle_s) == (0.0, None, 90030.0)


@pytest.mark.parametrize("door", ["cron", "crond", "CRON", "atd", "anacron", "ssm-document-wo"])
def test_job_of_cron_counts_by_its_work(seen: Seen, door: str) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, door, parent=1, uid=0, cgroup=SERVICE)
    seen.look()
    seen.machine.process(401, "sh", parent=400, session=401, cgroup=SERVICE, born_s=1010.0)
    seen.machine.process(402, "evaluate", parent=401, session=401, cgroup=SERVICE, ticks=15 * SECOND, born_s=1011.0)
    one = only(seen.later())

    assert (one.kind, one.name, one.cpu_s) == ("cron", "evaluate", 15.0)


@pytest.mark.parametrize("name", ["restic", "run-parts", "updatedb", "watch", "nvtop", "dcgmi", "logrotate", "apt-get"])
def test_upkeep_and_watching_are_nobodys_work_with_all_they_start(seen: Seen, name: str) -> None:
    seen.machine.process(400, name, parent=SHELL)
    seen.machine.process(401, "helper", parent=400)
    seen.look()
    seen.machine.process(400, name, parent=SHELL, ticks=20 * SECOND, reaped=5 * SECOND)
    seen.machine.process(401, "helper", parent=400, ticks=20 * SECOND)

    assert only(seen.later()).cpu_s == 0.0


def test_agent_itself_is_nobodys_work(seen: Seen) -> None:
    seen.machine.process(99, "python3", parent=SHELL)
    seen.look()
    seen.machine.process(99, "python3", parent=SHELL, ticks=20 * SECOND)

    assert only(seen.later()).cpu_s == 0.0


# --- what was left behind ---


def test_work_that_outlives_its_login_is_still_somebodys(seen: Seen) -> None:
    seen.machine.process(400, "prep", parent=SHELL, ticks=SECOND)
    seen.look()
    seen.machine.end(SHELL)
    seen.machine.process(400, "prep", parent=1, ticks=20 * SECOND)
    one = only(seen.later())

    assert (one.kind, one.name, one.cpu_s) == ("background", "prep", 19.0)


@pytest.mark.parametrize(
    ("uid", "cgroup", "expected"),
    [
        (1000, "/user.slice/user-1000.slice/session-3.scope", ["background"]), (0, "/user.slice/user-0.slice/session-9.scope", ["background"]),
        (1000, SERVICE, ["background"]), (0, "/system.slice/run-u17.service", ["background"]), (0, "/system.slice/run-r0a1b.scope", ["background"]), (0, SERVICE, []), (990, SERVICE, []), (65534, SERVICE, []), (61184, SERVICE, []), (200_000, "/", ["background"]),
    ],
    ids=["a person's", "root's login", "a person's service", "a unit made on the spot", "a scope made on the spot", "root's service", "a service's number", "nobody", "a dynamic user", "of a directory"],
)  # fmt: skip
def test_what_has_no_parent_is_a_persons_by_its_number_or_its_login(seen: Seen, uid: int, cgroup: str, expected: List[str]) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, "prep", parent=1, uid=uid, cgroup=cgroup)
    seen.look()
    seen.machine.process(400, "prep", parent=1, uid=uid, cgroup=cgroup, ticks=20 * SECOND)

    assert kinds(seen.later()) == expected


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("cloud-final", True), ("google-startup-scripts", True), ("amazon-ssm-agent", True), ("snap.amazon-ssm-agent.amazon-ssm-agent", True), ("cron", True),
        ("ssh", True), ("ssh@7-10.0.0.1:22-10.0.0.2:4711", True), ("postgresql", False), ("my-cron", False), ("docker", False),
    ],
)  # fmt: skip
def test_what_root_left_where_a_door_let_it_in_is_seen_by_an_agent_that_came_later(seen: Seen, unit: str, expected: bool) -> None:
    seen.machine.end(SHELL)
    left = {"parent": 1, "uid": 0, "cgroup": "/system.slice/%s.service" % unit}
    seen.machine.process(400, "prep", **left)
    seen.look()
    seen.machine.process(400, "prep", ticks=20 * SECOND, **left)

    assert kinds(seen.later()) == (["background"] if expected else [])


@pytest.mark.parametrize("above", ["supervisord", "pbs_mom", "some-daemon"])
def test_persons_program_under_a_service_that_is_nobodys_is_the_persons(seen: Seen, above: str) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, above, parent=1, uid=0, cgroup=SERVICE)
    for ticks in (0, 20 * SECOND):
        seen.machine.process(401, "prep", parent=400, uid=1000, cgroup=SERVICE)
        seen.machine.process(402, "python3", parent=401, uid=1000, cgroup=SERVICE, ticks=ticks)
        seen.machine.process(403, "daemon", parent=400, uid=0, cgroup=SERVICE, ticks=ticks)
        seen.machine.process(404, "worker", parent=400, uid=33, cgroup=SERVICE, ticks=ticks)
        reading = seen.later()

    assert [(one.kind, one.name, one.uid, one.cpu_s) for one in reading.at_work] == [("background", "python3", 1000, 20.0)]
    assert seen.later().at_work == ()


def test_terminal_that_a_service_of_root_opened_is_a_session(seen: Seen) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, "some-web-shell", parent=1, uid=0, cgroup=SERVICE)
    seen.machine.process(401, "bash", parent=400, uid=0, cgroup=SERVICE, session=401, terminal=True, number=4, stdin=None)
    seen.typed(4, 25.0)

    assert [(one.kind, one.uid, one.idle_s) for one in seen.look().at_work] == [("terminal", 0, 25.0)]
    assert only(seen.later(600.0)).idle_s == 625.0


@pytest.mark.parametrize("door", ["mosh-server", "tailscaled", "teleport", "ttyd", "cockpit-bridge"])
def test_shell_by_another_way_in_than_ssh_is_a_session(seen: Seen, door: str) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, door, parent=1, uid=0, cgroup=SERVICE)
    seen.machine.process(401, "bash", parent=400, session=401, terminal=True, number=4, stdin=None)
    seen.typed(4, 25.0)

    assert [(one.kind, one.user, one.idle_s) for one in seen.look().at_work] == [("ssh", "ada", 25.0)]


@pytest.mark.parametrize("name", ["sshd", "sshd-session"])
def test_files_that_the_end_of_an_ssh_connection_carries_itself_count(seen: Seen, name: str) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(DOOR, name, parent=SSHD, io_bytes=1000)
    first = seen.look().at_work
    seen.machine.process(DOOR, name, parent=SSHD, io_bytes=1000 + (90 << 20))
    one = only(seen.later())

    assert first == ()
    assert (one.kind, one.name, one.bytes) == ("ssh", name, 90 << 20)


def test_connection_that_only_stays_open_and_the_one_who_waits_for_connections_are_no_work(seen: Seen) -> None:
    seen.machine.end(SHELL)
    looks = []
    for n in range(3):
        seen.machine.process(SSHD, "sshd", parent=1, uid=0, cgroup=SERVICE, io_bytes=n << 30, ticks=n * 20 * SECOND)
        seen.machine.process(DOOR, "sshd", parent=SSHD, io_bytes=1000)
        looks.append(seen.later().at_work)

    assert looks == [(), (), ()]


def test_image_that_is_built_is_work_of_what_runs_in_it(seen: Seen) -> None:
    """BuildKit in the daemon runs each step below a runc of its own, and the client in the terminal only waits."""
    seen.machine.end(SHELL)
    seen.machine.process(400, "dockerd", parent=1, uid=0, cgroup=SERVICE)
    seen.machine.process(401, "runc", parent=400, uid=0, cgroup=SERVICE)
    seen.machine.process(402, "ninja", parent=401, uid=0, cgroup="/docker/buildkit/x")
    seen.look()
    seen.machine.process(402, "ninja", parent=401, uid=0, cgroup="/docker/buildkit/x", ticks=30 * SECOND)

    assert [(one.kind, one.name, one.cpu_s) for one in seen.later().at_work] == [("container", "ninja", 30.0)]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "node"])
def test_server_that_somebody_left_running_and_that_only_waits_is_no_work(seen: Seen, name: str) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, name, parent=1, ticks=50 * SECOND, io_bytes=1 << 30)
    looks = [seen.look(), seen.later(), seen.later()]

    assert [look.at_work for look in looks] == [(), (), ()]


@pytest.mark.parametrize("name", ["cloud-init", "google_metadata"])
def test_set_up_of_a_new_machine_is_work(seen: Seen, name: str) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, name, parent=1, uid=0, cgroup=SERVICE)
    seen.machine.process(401, "part-001", parent=400, uid=0, cgroup=SERVICE)
    seen.look()
    seen.machine.process(401, "part-001", parent=400, uid=0, cgroup=SERVICE, reaped=9 * SECOND)
    one = only(seen.later())

    assert (one.kind, one.cpu_s) == ("setup", 9.0)


def test_kernel_threads_are_nobodys_work_whatever_state_they_are_in(seen: Seen) -> None:
    seen.machine.end(SHELL)
    for pid, parent in ((2, 0), (30, 2), (31, 2)):
        seen.machine.process(pid, "kthreadd" if pid == 2 else "nfsd", parent=parent, uid=0, cgroup="/", state="D", ticks=pid * SECOND)

    assert seen.look().at_work == seen.later().at_work == ()


def test_work_in_a_container_is_somebodys_whoever_it_is_inside(seen: Seen) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, "containerd-shim", parent=1, uid=0, cgroup=SERVICE)
    seen.machine.process(401, "python3", parent=400, uid=0, cgroup=DOCKER)
    seen.look()
    seen.machine.process(401, "python3", parent=400, uid=0, cgroup=DOCKER, ticks=20 * SECOND)
    one = only(seen.later())

    assert (one.kind, one.name, one.cpu_s) == ("container", "python3", 20.0)


def test_terminal_of_a_container_is_not_taken_for_the_hosts_of_the_same_number(seen: Seen) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, "containerd-shim", parent=1, uid=0, cgroup=SERVICE)
    seen.machine.process(401, "bash", parent=400, session=401, cgroup=DOCKER, terminal=True, number=0, stdin=None)
    reading = seen.look()

    assert only(reading).idle_s is None
    assert reading.unread == ("when somebody typed into containers' terminals",)


# --- CPU and bytes of a tree ---


def test_children_that_come_and_go_between_looks_count(seen: Seen) -> None:
    seen.look()
    seen.shell(reaped=9 * SECOND)

    assert only(seen.later()).cpu_s == 9.0


def test_child_that_ended_is_not_counted_twice(seen: Seen) -> None:
    seen.machine.process(400, "make", parent=SHELL, ticks=5 * SECOND)
    seen.look()
    seen.machine.end(400)
    seen.shell(reaped=7 * SECOND)

    assert only(seen.later()).cpu_s == 2.0


def test_first_sight_of_an_old_tree_has_no_figure(seen: Seen) -> None:
    seen.shell(ticks=500 * SECOND)

    assert only(seen.look()).cpu_s is None
    assert only(seen.later()).cpu_s == 0.0


def test_number_that_is_anothers_now_brings_its_own_time_only(seen: Seen) -> None:
    seen.machine.process(400, "make", parent=SHELL, ticks=50 * SECOND)
    seen.look()
    seen.machine.process(400, "cc1", parent=SHELL, ticks=3 * SECOND, born_s=1010.0)

    assert only(seen.later()).cpu_s == 3.0


def test_bytes_through_calls_are_added_up_and_absent_where_one_is_hidden(seen: Seen) -> None:
    seen.shell(io_bytes=10)
    seen.machine.process(400, "wget", parent=SHELL, io_bytes=1000)
    seen.look()
    seen.machine.process(400, "wget", parent=SHELL, io_bytes=51000)
    after = only(seen.later()).bytes
    seen.machine.process(400, "wget", parent=SHELL)

    assert (after, only(seen.later()).bytes) == (50000, None)


@pytest.mark.parametrize(("name", "parent"), [("rsync", DOOR), ("aws", SHELL), ("git-lfs", SHELL), ("sftp-server", DOOR)])
def test_copy_that_uses_no_cpu_counts_by_its_bytes_before_anything_holds_a_gpu(seen: Seen, name: str, parent: int) -> None:
    seen.typed(0, 90_000.0)
    for put in (0, 60 << 20):
        seen.machine.process(400, name, parent=parent, session=400 if parent == DOOR else SHELL, io_bytes=put)
        seen.shell(io_bytes=0)
        reading = seen.later()

    assert [one.bytes for one in reading.at_work if one.bytes] == [60 << 20]


# --- notebooks and editors ---


def notebook(seen: Seen, server: str = "jupyter-lab", **kernel: Any) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, server, parent=1, uid=1000)
    seen.machine.process(401, "python3", parent=400, session=401, **{"args": ("python3", "-m", "ipykernel_launcher", "-f", "/home/ada/kernel-1.json"), **kernel})


@pytest.mark.parametrize("busy", [True, False, None])
def test_kernel_is_busy_while_it_runs_a_cell_whatever_else_is_silent(seen: Seen, busy: Optional[bool]) -> None:
    notebook(seen)
    seen.kernels[401] = busy
    seen.look()
    reading = seen.later(60.0)
    one = only(reading)

    assert (one.kind, one.busy, one.busy_s, one.cpu_s) == ("kernel", busy, 60.0 if busy else None, 0.0)
    assert bool(reading.unread) is (busy is None)


def test_workers_of_a_kernel_are_part_of_it(seen: Seen) -> None:
    notebook(seen)
    seen.machine.process(402, "python3", parent=401, session=401, args=("python3", "-m", "ipykernel_launcher", "-f", "/home/ada/kernel-1.json"))
    seen.look()
    seen.machine.process(402, "python3", parent=401, session=401, ticks=28 * SECOND, args=("python3", "-m", "ipykernel_launcher"))

    assert only(seen.later()).cpu_s == 28.0


def test_server_and_its_open_tab_are_no_work(seen: Seen) -> None:
    notebook(seen)
    seen.machine.process(400, "jupyter-lab", parent=1, ticks=30 * SECOND, io_bytes=1 << 30)
    seen.look()
    seen.machine.process(400, "jupyter-lab", parent=1, ticks=60 * SECOND, io_bytes=1 << 31)

    assert [(one.kind, one.cpu_s) for one in seen.later().at_work] == [("kernel", 0.0)]


def test_server_that_runs_as_a_module_is_one_too(seen: Seen) -> None:
    notebook(seen, server="python3")
    seen.machine.process(400, "python3", parent=1, args=("python3", "-m", "jupyterlab"))
    seen.look()
    seen.machine.process(400, "python3", parent=1, args=("python3", "-m", "jupyterlab"), ticks=9 * SECOND)

    assert kinds(seen.later()) == ["kernel"]


def test_server_without_any_session_is_no_work(seen: Seen) -> None:
    notebook(seen)
    seen.machine.end(401)
    seen.look()

    assert seen.later().at_work == ()


def test_terminal_in_a_notebook_counts_by_input_and_by_its_tree(seen: Seen) -> None:
    notebook(seen)
    seen.machine.process(410, "bash", parent=400, session=410, terminal=True, number=5, stdin=None)
    seen.machine.process(411, "python3", parent=410, session=410, args=("python3", "train.py"))
    seen.typed(5, 4000.0)
    seen.look()
    seen.machine.process(411, "python3", parent=410, session=410, ticks=25 * SECOND, args=("python3", "train.py"))
    one = only(seen.later(), "terminal")

    assert (one.cpu_s, one.idle_s) == (25.0, 4030.0)


def test_editor_is_told_by_its_own_tree_without_its_kernels_and_terminals(seen: Seen) -> None:
    seen.machine.end(SHELL)
    args = ("/home/ada/.vscode-server/bin/x/node", "/home/ada/.vscode-server/bin/x/out/server-main.js")
    seen.machine.process(400, "node", parent=1, args=args)
    seen.machine.process(401, "node", parent=400, args=(args[0], "--type=extensionHost"))
    seen.machine.process(402, "bash", parent=400, session=402, terminal=True, number=6, stdin=None)
    seen.machine.process(403, "python3", parent=401, args=("python3", "-m", "ipykernel_launcher"))
    seen.typed(6, 50.0)
    seen.look()
    seen.machine.process(401, "node", parent=400, args=(args[0], "--type=extensionHost"), ticks=6 * SECOND)
    found = {one.kind: one for one in seen.later().at_work}

    assert sorted(found) == ["editor", "kernel", "terminal"]
    assert (found["editor"].cpu_s, found["kernel"].cpu_s, found["terminal"].idle_s) == (6.0, 0.0, 80.0)


def test_two_editor_servers_of_one_container_are_two(seen: Seen) -> None:
    seen.machine.end(SHELL)
    seen.machine.process(400, "containerd-shim", parent=1, uid=0, cgroup=SERVICE)
    args = ("/usr/lib/code-server/lib/node", "/usr/lib/code-server")
    for ticks in (0, 3 * SECOND):
        seen.machine.process(401, "node", parent=400, args=args, cgroup=DOCKER, session=401)
        seen.machine.process(402, "node", parent=400, args=args, cgroup=DOCKER, session=402, ticks=ticks)
        reading = seen.later()

    assert sorted((one.kind, one.cpu_s) for one in reading.at_work) == [("editor", 0.0), ("editor", 3.0)]


def test_terminal_that_was_forgotten_in_a_notebook_is_shown_and_does_nothing(seen: Seen) -> None:
    notebook(seen)
    seen.machine.process(410, "bash", parent=400, session=410, terminal=True, number=5, stdin=None)
    seen.typed(5, 90_000.0)
    seen.look()
    one = only(seen.later(), "terminal")

    assert (one.cpu_s, one.bytes, one.idle_s) == (0.0, None, 90_030.0)


def test_command_that_does_not_answer_is_not_waited_for_and_not_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(tmp_path)
    notebook(seen)
    fifo = seen.machine.proc / "401" / "cmdline"
    fifo.unlink()
    os.mkfifo(fifo)  # opening it waits for a writer, as a process that hangs does
    seen.presence._commands._within_s = 0.05
    reading = seen.look()
    with open(fifo, "wb") as file:
        file.write(b"python3\0-m\0ipykernel_launcher\0")
    thread = seen.presence._commands._asking
    assert thread is not None
    thread.join(20.0)

    assert reading.unread == ("what 1 programs are (asked, and no answer yet)",)


# --- where a kernel sleeps ---


@pytest.mark.parametrize(
    ("name", "state", "sleeps_in", "expected"),
    [
        ("python3", "S", "do_epoll_wait", False), ("python3", "S", "ep_poll", False), ("python3", "S", "hrtimer_nanosleep", True),
        ("python3", "S", "poll_schedule_timeout.constprop.0", True), ("python3", "S", "futex_do_wait", True), ("python3", "S", "do_wait", True),
        ("python3", "S", "pipe_read", True), ("python3", "R", None, True), ("python3", "D", None, True), ("python3", "S", None, None),
        ("python3", "S", "0", None), ("python3", "T", "do_signal_stop", None), ("R", "S", "poll_schedule_timeout", False), ("julia", "S", "do_epoll_wait", False),
        ("python3", "Z", None, False),
    ],
)  # fmt: skip
def test_kernel_by_where_its_main_thread_sleeps(tmp_path: Path, name: str, state: str, sleeps_in: Optional[str], expected: Optional[bool]) -> None:
    machine = FakeMachine(tmp_path)
    machine.process(401, name, state=state, sleeps_in=sleeps_in)

    assert is_busy(machine.procs, 401, name, lambda s: None) is expected


def test_kernel_that_answers_a_message_is_idle_again_at_once(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.process(401, "python3", state="R")

    def back(for_s: float) -> None:
        machine.process(401, "python3", sleeps_in="do_epoll_wait")

    assert is_busy(machine.procs, 401, "python3", back) is False


NO_LIMIT = "0x9 0x7f00 0x3ff %s 0x0 0x8 0x7ffd 0x7fcae5385503"


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        ("python3", NO_LIMIT % "0xffffffffffffffff", False), ("python3", NO_LIMIT % "0xffffffff", False), ("python3", NO_LIMIT % "0x0", False),
        ("python3", NO_LIMIT % "0x927c0", True), ("python3", NO_LIMIT % "0x1", True), ("python3", None, False), ("python3", "running", False),
        ("python3", "not a call at all", False), ("python3", "9999 " + NO_LIMIT % "0x927c0", False), ("R", NO_LIMIT % "0x927c0", False),
    ],
    ids=["idle", "idle, as 32 bits", "only looks", "cell sleeps", "cell sleeps a moment", "hidden", "awake by now", "nonsense", "another call", "R looks around"],
)  # fmt: skip
def test_kernel_that_sleeps_in_its_event_loop_runs_a_cell_where_a_timer_is_set(tmp_path: Path, name: str, call: Optional[str], expected: bool) -> None:
    machine = FakeMachine(tmp_path)
    number = EPOLL_WAIT.get(os.uname().machine)
    if number is None:
        pytest.skip("which call this is on %s is not known to us" % os.uname().machine)
    machine.process(401, name, sleeps_in="do_epoll_wait", call="%d %s" % (number, call) if call is not None and call.startswith("0x") else call)

    assert is_busy(machine.procs, 401, name, lambda s: None) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("python3", "-m", "ipykernel_launcher", "-f", "/x/kernel-1.json"), "kernel"), (("/opt/py/bin/python", "-Xfrozen_modules=off", "-m", "ipykernel"), "kernel"),
        (("R", "--slave", "-e", "IRkernel::main()", "--args", "/x/kernel-2.json"), "kernel"), (("/usr/bin/xpython", "-f", "/x/kernel-3.json"), "kernel"),
        (("python3", "train.py", "--name", "ipykernels"), None), (("python3", "/usr/local/bin/jupyter-lab", "--ip=0.0.0.0"), "notebook"),
        (("python3", "-m", "notebook"), "notebook"), (("node", "/home/u/.vscode-server/bin/1/out/server-main.js"), "editor"),
        (("/usr/lib/code-server/lib/node", "/usr/lib/code-server"), "editor"), (("node", "app.js"), None), (("/home/u/.cache/JetBrains/RemoteDev/dist/1_pycharm/jbr/bin/java", "-Xmx2g"), "editor"),
        (("/usr/lib/rstudio-server/bin/rsession", "-u", "ada"), "editor"), (("python3", "-m", "marimo", "edit"), "editor"), (("/home/u/.zed_server/zed-remote-server-0.2", "run"), "editor"),
        (("node", "/home/u/.vscode/cli/servers/Stable-1/server/out/server-main.js"), "editor"), (("java", "-jar", "app.jar"), None),
        (("python3", "-m", "spyder_kernels.console", "-f", "/run/user/1000/kernel-1.json"), "kernel"), (("python3", "-m", "papermill", "in.ipynb"), None),
        (("python3", "-m", "ipykernel_launcher", "-f", "/tmp/tmp1.json", "--HistoryManager.hist_file=:memory:"), "kernel"), (("python3", "analyse_notebook.py"), None), ((), None),
    ],
)  # fmt: skip
def test_what_a_command_runs(command: Any, expected: Optional[str]) -> None:
    assert doors.kind_of_command(tuple(command)) == expected


# --- the list ---


def test_most_of_a_machine_is_read_twice_and_then_left_alone(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    for pid in range(1000, 1200):
        machine.process(pid, "service", parent=1, uid=0, cgroup=SERVICE)
    asked: List[int] = []

    class Counted(Procs):
        def stat(self, pid: int) -> Any:
            asked.append(pid)
            return super().stat(pid)

    roster = Roster(Counted(machine.proc, machine.cgroup, HZ))
    roster.look(), roster.look()
    asked.clear()
    roster.look()

    assert len(asked) <= IN_TURN + 3 + 2


def test_process_that_starts_its_program_after_we_saw_it_is_read_again(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.process(400, "systemd", parent=1, uid=0, cgroup=SERVICE)
    roster = Roster(machine.procs)
    roster.look()
    machine.process(400, "cron", parent=1, uid=0, cgroup=SERVICE)
    machine.process(401, "sh", parent=400, uid=0, cgroup=SERVICE)
    listed = roster.look()

    assert listed is not None
    assert listed.places[401].kind == "cron"


def test_chain_of_parents_that_turns_in_a_circle_ends(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.process(400, parent=401)
    machine.process(401, parent=400)

    assert Roster(machine.procs).look() is not None


# --- from looks to a report ---


def reading(at_s: float, *items: AtWorkReading, for_s: Optional[float] = 30.0, unread: Any = ()) -> PresenceReading:
    return PresenceReading(at_s, for_s, items, unread)


def test_window_has_the_mean_of_its_looks_and_the_last_input() -> None:
    one = AtWorkReading("5-1", "tmux", "ada", 1000, "prep", 40.0, 6.0, 3000)
    told = at_work.fold([reading(30.0, one), reading(60.0, one._replace(idle_s=70.0, cpu_s=0.0, bytes=0))], 62.0)

    assert told.at_work == (AtWork("tmux", "ada", 1000, "prep", 72.0, 0.1, 50.0),)


def test_cell_that_ran_at_one_look_makes_the_window_busy() -> None:
    one = AtWorkReading("5-1", "kernel", cpu_s=0.0, busy=True, busy_s=0.0)
    first, then = reading(30.0, one), reading(60.0, one._replace(busy=False, busy_s=None))

    assert [item.busy for item in at_work.fold([first, then], 60.0).at_work] == [True]
    assert [item.busy for item in at_work.fold([then], 60.0).at_work] == [False]
    assert [item.busy for item in at_work.fold([then, reading(60.0, one._replace(busy=None))], 60.0).at_work] == [None]


def test_what_could_not_be_seen_at_one_look_was_not_seen() -> None:
    assert at_work.fold([reading(30.0, unread=("x",)), reading(60.0)], 60.0).unread == ("x",)


def test_so_many_and_no_more_and_work_is_never_what_is_left_out() -> None:
    idle = [AtWorkReading("%d-1" % n, "ssh", idle_s=5000.0, cpu_s=0.0) for n in range(40)]
    busy = [AtWorkReading("100-1", "kernel", cpu_s=0.0, busy=True), AtWorkReading("101-1", "cron", cpu_s=30.0), AtWorkReading("102-1", "ssh", idle_s=3.0)]
    told = at_work.fold([reading(60.0, *idle, *busy)], 60.0).at_work

    assert len(told) == at_work.MOST_AT_WORK
    assert [one.kind for one in told[:3]] == ["kernel", "ssh", "cron"] or [one.kind for one in told[:3]] == ["kernel", "cron", "ssh"]


def test_trees_that_do_next_to_nothing_are_not_told() -> None:
    quiet = AtWorkReading("1-1", "background", cpu_s=0.05)

    assert at_work.fold([reading(60.0, quiet)], 60.0).at_work == ()
