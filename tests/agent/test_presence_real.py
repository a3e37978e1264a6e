"""Real sessions, terminals, multiplexers, kernels and connections, as the kernel of this machine shows them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional

import pytest

from agent.kernels import is_busy
from agent.links import LinkLook
from agent.presence import Presence
from agent.procs import Procs
from agent.readings import AtWorkReading, PresenceReading
from agent.roster import Roster

WITHIN_S = 30.0
ROOT = os.geteuid() == 0

# A process that calls itself by another's name, as the kernel has it.
NAMED = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1])\n"
BURN = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\nprint('burnt', flush=True)\ntime.sleep(600)\n"


def until(found: Callable[[], Any], what: str = "it") -> Any:
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError("%s did not come" % what)


class Watcher:
    def __init__(self) -> None:
        self.presence = Presence(Procs(), str, us=os.getpid())

    def look(self) -> PresenceReading:
        return self.presence.look(time.clock_gettime(time.CLOCK_BOOTTIME), time.time())

    def of(self, pid: int, reading: Optional[PresenceReading] = None) -> Optional[AtWorkReading]:
        """What is told of the tree whose head this is."""
        reading = reading if reading is not None else self.look()
        return next((one for one in reading.at_work if one.id.startswith("%d-" % pid)), None)


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def started() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts Python on a text; all of them, and what they started, are ended with the test."""
    made: List["subprocess.Popen[bytes]"] = []

    def start(code: str, *args: str, **more: Any) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-c", code, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, **more
        )
        made.append(process)
        return process

    yield start
    for process in made:
        for pid in children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def children(pid: int) -> List[int]:
    found = [int(child) for child in Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()] if Path("/proc/%d" % pid).exists() else []
    return [*found, *(below for child in found for below in children(child))]


def line_of(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


SESSION = NAMED + (
    "import os, pty\n"
    "pid, master = pty.fork()\n"
    "if pid == 0: os.execvp('sh', ['sh'])\n"
    "print(pid, flush=True)\n"
    "while True:\n"
    "    data = sys.stdin.buffer.raw.read(1)\n"
    "    if not data: break\n"
    "    os.write(master, data)\n"
)


def session(started: Callable[..., Any]) -> Any:
    door = started(SESSION, "sshd")
    pid = int(line_of(door))
    until(lambda: Procs().stat(pid).name == "sh", "the shell")
    until(lambda: Procs().sleeps_in(pid), "its prompt")
    return door, pid, os.readlink("/proc/%d/fd/0" % pid)


def test_session_with_input_and_one_that_was_forgotten(started: Any, watcher: Watcher) -> None:
    door, pid, terminal = session(started)
    hours_ago = time.time() - 7200.0
    os.utime(terminal, (hours_ago, hours_ago))
    forgotten = watcher.of(pid)
    door.stdin.write(b"true\n")
    door.stdin.flush()
    fresh = until(lambda: (lambda one: one if one is not None and one.idle_s < 600.0 else None)(watcher.of(pid)), "the input")

    assert forgotten is not None
    assert (forgotten.kind, forgotten.name, round(forgotten.idle_s or 0.0, -2)) == ("ssh", "sh", 7200.0)
    assert fresh.kind == "ssh"


def test_children_that_come_and_go_in_a_session_count(started: Any, watcher: Watcher) -> None:
    door, pid, _ = session(started)
    until(lambda: watcher.of(pid), "the session")
    door.stdin.write(b"%s -c 'x = sum(range(6000000))'; echo done\n" % sys.executable.encode())
    door.stdin.flush()
    spent: List[float] = []

    def enough() -> bool:
        one = watcher.of(pid)
        spent.append(one.cpu_s or 0.0 if one is not None else 0.0)
        return sum(spent) >= 0.05

    until(enough, "its CPU")


@pytest.fixture
def screens() -> Iterator[Path]:
    """A socket's path may have a hundred characters, and tests' folders lie deep."""
    made = Path(tempfile.mkdtemp(prefix="screens-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize("kind", ["tmux", "screen"])
def test_program_in_a_real_multiplexer(kind: str, tmp_path: Path, watcher: Watcher, screens: Path) -> None:
    tool = shutil.which(kind)
    if tool is None:
        pytest.skip("%s is not installed: apt-get install -y --no-install-recommends %s" % (kind, kind))
    script, name = tmp_path / "burn.py", "reaper-test-%d" % os.getpid()
    script.write_text("import os, pathlib\npathlib.Path(%r).write_text(str(os.getpid()))\n" % str(tmp_path / "pid") + BURN)
    env = {**os.environ, "TERM": "xterm", "TMUX_TMPDIR": str(screens), "SCREENDIR": str(screens)}
    watcher.look()
    begin = [tool, "-L", name, "-f", "/dev/null", "new-session", "-d"] if kind == "tmux" else [tool, "-c", "/dev/null", "-dmS", name]
    subprocess.run([*begin, sys.executable, str(script)], env=env, check=True, timeout=WITHIN_S)
    try:
        pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the program"))
        found: List[AtWorkReading] = []

        def burnt() -> bool:
            one = next((one for one in watcher.look().at_work if one.kind == kind and one.cpu_s is not None), None)
            found.extend([one] if one is not None else [])
            return sum(one.cpu_s or 0.0 for one in found) >= 0.3

        until(burnt, "its CPU")
        assert found[-1].idle_s is not None
        assert int(found[-1].id.partition("-")[0]) in (pid, Procs().stat(pid).parent if Procs().stat(pid) else -1)
    finally:
        end = [tool, "-L", name, "kill-server"] if kind == "tmux" else [tool, "-S", name, "-X", "quit"]
        subprocess.run(end, env=env, check=False, timeout=WITHIN_S)


KERNEL = (
    "import os, select, sys, time\n"
    "poll = select.epoll(); poll.register(0, select.EPOLLIN)\n"
    "print(os.getpid(), flush=True)\n"
    "while True:\n"
    "    poll.poll()\n"
    "    cell = sys.stdin.buffer.raw.readline()\n"
    "    if not cell: break\n"
    "    print('runs', flush=True)\n"
    "    exec(cell)\n"
    "    print('ran', flush=True)\n"
)


def test_kernel_that_waits_for_a_message_and_one_that_runs_a_silent_cell(started: Any, watcher: Watcher, tmp_path: Path) -> None:
    script = tmp_path / "ipykernel_launcher.py"
    script.write_text(KERNEL)
    server = started(NAMED + "import subprocess; subprocess.run([sys.executable, *sys.argv[2:]])", "jupyter-lab", str(script), "-f", "kernel-1.json")
    pid = int(line_of(server))
    idle = until(lambda: (lambda one: one if one is not None and one.busy is False else None)(watcher.of(pid)), "the idle kernel")
    server.stdin.write(b"time.sleep(4)\n")
    server.stdin.flush()
    assert line_of(server) == "runs"
    busy = until(lambda: (lambda one: one if one is not None and one.busy else None)(watcher.of(pid)), "the cell")
    server.stdin.write(b"import asyncio\n")  # the pipe is read once the cell has ended
    server.stdin.flush()

    assert (idle.kind, busy.kind) == ("kernel", "kernel")
    assert busy.busy_s is not None


NOTEBOOK = """
import asyncio, os, sys
async def often():
    while True: await asyncio.sleep(0.5)
cells = {
    "sleep": lambda: asyncio.sleep(600), "limit": lambda: asyncio.wait_for(asyncio.Event().wait(), 500), "many": lambda: asyncio.gather(*map(asyncio.sleep, range(300, 320))),
    "often": often, "socket": lambda: asyncio.wait_for(reader.read(1), 400), "event": lambda: asyncio.Event().wait(), "over": lambda: asyncio.wait_for(asyncio.sleep(0), 500),
}
async def run(name):
    print("runs", flush=True)
    try: await cells[name]()
    finally: print("ran", flush=True)
async def main():
    global reader, task
    import socket
    ours, theirs = socket.socketpair()
    reader, _ = await asyncio.open_connection(sock=ours)
    def message():
        global task
        name = sys.stdin.buffer.raw.readline().decode().strip()
        if name == "interrupt": task.cancel()
        else: task = asyncio.ensure_future(run(name))
    asyncio.get_running_loop().add_reader(0, message)
    print(os.getpid(), theirs.fileno(), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def kernel(started: Any) -> Any:
    """A program whose cells run inside its event loop, as ipykernel's do: tell it a cell, hear what it says, wait for what is seen of it."""
    process = started(NOTEBOOK)
    pid = int(line_of(process).split()[0])
    until(lambda: Procs().sleeps_in(pid), "its loop")
    if not Path("/proc/%d/syscall" % pid).exists() or not os.access("/proc/%d/syscall" % pid, os.R_OK):
        pytest.skip("this machine does not show in which call a process sleeps")

    def say(word: str) -> None:
        process.stdin.write(word.encode() + b"\n")
        process.stdin.flush()

    def becomes(busy: bool) -> bool:
        return bool(until(lambda: is_busy(Procs(), pid, "python3") is busy, "busy=%s" % busy))

    return say, lambda: line_of(process), becomes


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="which call this is here is not known to us")
@pytest.mark.parametrize("cell", ["sleep", "limit", "many", "often", "socket"])
def test_cell_that_awaits_with_a_timer_is_told_from_a_kernel_that_waits_for_a_message(kernel: Any, cell: str) -> None:
    say, heard, becomes = kernel
    assert becomes(False)
    say(cell)

    assert heard() == "runs"
    assert becomes(True)
    say("interrupt")
    assert heard() == "ran"
    say("over")  # a limit that was set stays until the loop turns again
    assert (heard(), heard()) == ("runs", "ran")
    assert becomes(False)


def test_cell_that_awaits_without_any_limit_is_not_told_from_an_idle_kernel(kernel: Any) -> None:
    say, heard, becomes = kernel
    say("event")

    assert heard() == "runs"
    assert becomes(False)


@pytest.mark.skipif(not ROOT, reason="needs root to become another user")
def test_program_that_outlives_its_login(started: Any, watcher: Watcher, tmp_path: Path) -> None:
    code = "import os, sys\nif os.fork(): os._exit(0)\nos.setuid(1234)\nprint(os.getpid(), flush=True)\n" + BURN
    pid = int(line_of(started(code)))
    try:
        watcher.look()
        spent: List[float] = []

        def burnt() -> bool:
            one = watcher.of(pid)
            spent.append(one.cpu_s or 0.0 if one is not None else 0.0)
            return sum(spent) >= 0.1

        until(burnt, "its CPU")
        one = watcher.of(pid)
        assert one is None or (one.kind, one.uid) == ("background", 1234)
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(not ROOT, reason="needs root to become another user")
def test_program_that_a_service_of_root_started_as_somebody_else_is_theirs(started: Any) -> None:
    service = started("import subprocess, sys\nprint(subprocess.Popen(['sleep', '600'], user=1234).pid, flush=True)\ninput()")
    pid = int(line_of(service))
    until(lambda: Procs().owner(pid) == 1234, "its program")
    listed = Roster(Procs(), us=os.getpid()).look()

    assert listed is not None
    assert pid in listed.places


# --- connections ---

PEERS = """
import os, socket, subprocess, sys
for words in (["link", "set", "lo", "up"], ["addr", "add", "10.9.0.1/32", "dev", "lo"], ["addr", "add", "10.9.0.2/32", "dev", "lo"]):
    subprocess.run(["ip", *words], check=True)
family, listen_on, call = sys.argv[1:]
family = socket.AF_INET6 if family == "6" else socket.AF_INET
server = socket.socket(family)
server.bind((listen_on, 29500))
server.listen()
os.environ.clear()
caller = os.fork()
if caller == 0:
    client = socket.socket(family)
    if family == socket.AF_INET:
        client.bind(("10.9.0.2", 0))
    client.connect((call, 29500))
    server.close()
    sys.stdin.buffer.raw.read(1)
    os._exit(0)
taken, _ = server.accept()
print(caller, flush=True)
sys.stdin.buffer.raw.read(1)
os.waitpid(caller, 0)
"""


@pytest.mark.skipif(not ROOT or shutil.which("unshare") is None or shutil.which("ip") is None, reason="needs root, unshare and ip")
@pytest.mark.parametrize(("family", "listen_on", "call"), [("4", "10.9.0.1", "10.9.0.1"), ("6", "::", "::ffff:10.9.0.1")], ids=["IPv4", "IPv4 carried by IPv6"])
def test_connection_between_two_real_processes_of_another_network_namespace(family: str, listen_on: str, call: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["unshare", "-n", sys.executable, "-c", PEERS, family, listen_on, call], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        caller = int(line_of(process))
        theirs = LinkLook(Procs(), own=lambda: ("10.9.0.2",)).look([caller])
        ours = LinkLook(Procs(), own=lambda: ("10.9.0.1",)).look([process.pid])

        assert theirs is not None
        assert ours is not None
        assert theirs.peers == ("10.9.0.1",)
        assert ours.peers == (("10.9.0.2",) if family == "4" else ())  # over IPv6 both ends have the same address here, which is its own
        assert theirs.addresses == ("10.9.0.2",)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(WITHIN_S)
        assert process.stdout is not None
        process.stdout.close()
