"""To which machines GPU processes are connected, and which ranks they are, in a made-up /proc."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

import pytest

from agent.links import MOST_BYTES, MOST_DESCRIPTORS, MOST_PEERS, LinkLook, Told, address_of, own_addresses, told_by
from agent.people import ProcWork
from agent.readings import GpuReading, GpuSnapshot, Sample
from agent.report import Links, is_address
from tests.agent.doubles import ManualClock
from tests.agent.fakeproc import SHELL, FakeMachine

RANK = 400
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
OURS = "10.0.0.1"


def hexadecimal(address: str) -> str:
    import socket

    raw = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return "".join("%08X" % struct.unpack("=I", raw[at : at + 4]) for at in range(0, len(raw), 4))


def connected(machine: FakeMachine, pid: int, *peers: Tuple[str, int], state: str = "01", space: str = "net:[1]", held: Optional[Sequence[int]] = None) -> None:
    """A process with sockets (inode by peer). ``held``: the inodes that are its own, all unless given."""
    home = machine.proc / str(pid)
    (home / "ns").mkdir(exist_ok=True)
    os.symlink(space, home / "ns" / "net")
    for number, inode in enumerate(held if held is not None else [inode for _, inode in peers], 10):
        os.symlink("socket:[%d]" % inode, home / "fd" / str(number))
    (home / "net").mkdir()
    for table, six in (("tcp", False), ("tcp6", True)):
        lines = [
            "   0: %s:733C %s:0050 %s 00000000:00000000 00:00000000 00000000  1000        0 %d 1 0000 20 4 30 10 -1\n"
            % (hexadecimal("::1" if six else "127.0.0.1"), hexadecimal(peer), state, inode)
            for peer, inode in peers if (":" in peer) is six
        ]  # fmt: skip
        (home / "net" / table).write_text(HEAD + "".join(lines))


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    made = FakeMachine(tmp_path)
    made.process(RANK, environment=())
    return made


def look(machine: FakeMachine, *pids: int) -> Optional[Links]:
    return LinkLook(machine.procs, machine.proc, lambda: (OURS,)).look(pids or (RANK,))


def test_established_connections_of_a_gpu_process_lead_to_other_machines(machine: FakeMachine) -> None:
    connected(machine, RANK, ("10.0.0.2", 71), ("fd00::3", 72), ("::ffff:10.0.0.4", 73), ("52.95.110.1", 74))

    assert look(machine) == Links(True, (OURS,), ("10.0.0.2", "10.0.0.4", "fd00::3", "52.95.110.1"))


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.0.1.1", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", OURS])
def test_own_addresses_and_those_of_no_machine_are_left_out(machine: FakeMachine, peer: str) -> None:
    connected(machine, RANK, (peer, 71))

    assert look(machine) == Links(True, (OURS,))


@pytest.mark.parametrize("state", ["0A", "06", "08", "02"], ids=["listens", "waits after its end", "half closed", "tries"])
def test_only_established_connections_count(machine: FakeMachine, state: str) -> None:
    connected(machine, RANK, ("10.0.0.2", 71), state=state)

    assert look(machine) == Links(True, (OURS,))


def test_connection_of_another_process_of_the_same_namespace_is_not_its_own(machine: FakeMachine) -> None:
    connected(machine, RANK, ("10.0.0.2", 71), ("10.0.0.3", 72), held=[72])

    assert look(machine) == Links(True, (OURS,), ("10.0.0.3",))


def test_each_process_is_asked_in_its_own_namespace(machine: FakeMachine) -> None:
    machine.process(401, environment=())
    connected(machine, RANK, ("10.0.0.2", 71))
    connected(machine, 401, ("10.0.0.3", 71), space="net:[2]")

    assert look(machine, RANK, 401) == Links(True, (OURS,), ("10.0.0.2", "10.0.0.3"))


def test_who_started_the_ranks_is_asked_too_and_the_shell_above_is_not(machine: FakeMachine) -> None:
    machine.process(390, "torchrun")
    machine.process(RANK, parent=390, environment=())
    connected(machine, RANK)
    connected(machine, 390, ("10.0.0.9", 71), space="net:[2]")
    connected(machine, SHELL, ("10.0.0.8", 72))

    assert look(machine) == Links(True, (OURS,), ("10.0.0.9",))


def test_what_may_not_be_read_is_absent_or_not_whole(machine: FakeMachine) -> None:
    nothing = look(machine)
    machine.process(401, environment=())
    connected(machine, 401, ("10.0.0.2", 71))

    assert nothing is None
    assert look(machine, RANK, 401) == Links(False, (OURS,), ("10.0.0.2",))
    assert look(machine, 401, 9999) == Links(False, (OURS,), ("10.0.0.2",))


@pytest.mark.parametrize("what", ["table", "too long", "descriptors"])
def test_table_that_is_not_read_to_its_end_is_not_whole(machine: FakeMachine, what: str) -> None:
    connected(machine, RANK, ("10.0.0.2", 71))
    machine.process(401, environment=())
    connected(machine, 401, ("10.0.0.3", 72), space="net:[2]")
    table = machine.proc / str(RANK) / "net" / "tcp"
    if what == "table":
        table.unlink()
    elif what == "too long":
        table.write_text(table.read_text() + "x" * MOST_BYTES)
    else:
        for number in range(MOST_DESCRIPTORS + 1):
            os.symlink("pipe:[1]", machine.proc / str(RANK) / "fd" / str(1000 + number))
    links = look(machine, RANK, 401)

    assert links is not None
    assert (links.whole, links.peers) == (False, ("10.0.0.3",))


def test_so_many_peers_and_no_more_those_of_private_networks_first(machine: FakeMachine) -> None:
    connected(machine, RANK, *(("52.0.0.%d" % n, 100 + n) for n in range(40)), ("10.0.0.2", 71))
    links = look(machine)

    assert links is not None
    assert (len(links.peers), links.peers[0], links.whole) == (MOST_PEERS, "10.0.0.2", False)


def test_no_process_on_a_gpu_has_no_links(machine: FakeMachine) -> None:
    assert LinkLook(machine.procs, machine.proc).look([]) is None


# --- ranks ---


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (["RANK=3", "WORLD_SIZE=16", "MASTER_ADDR=10.0.0.9", "MASTER_PORT=29500", "AWS_SECRET_ACCESS_KEY=hush"], Told(3, 16, "10.0.0.9")),
        (["SLURM_PROCID=0", "SLURM_NTASKS=2"], Told(0, 2)), (["OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"], Told(1, 2)),
        (["MASTER_ADDR=ip-10-0-3-7.ec2.internal"], Told(master="10.0.3.7")), (["MASTER_ADDR=node7.cluster"], Told()), (["MASTER_ADDR=localhost"], Told()),
        (["MASTER_ADDR=127.0.0.1", "PET_RDZV_ENDPOINT=10.0.0.8:29400"], Told(master="10.0.0.8")), (["MASTER_ADDR=fd00::7"], Told(master="fd00::7")),
        (["JAX_COORDINATOR_ADDRESS=[fd00::7]:1234"], Told(master="fd00::7")), (["RANK=5", "WORLD_SIZE=5"], Told()), (["RANK=x", "WORLD_SIZE=2"], Told()),
        (["RANK=1"], Told()), (["PATH=/bin", "X=RANK=1"], Told()), ([], Told()), (["MASTER_ADDR=ip-999-0-0-1"], Told()),
    ],
)  # fmt: skip
def test_of_an_environment_ranks_and_the_masters_address_are_taken(environment: List[str], expected: Told) -> None:
    assert told_by("\0".join(environment) + "\0") == expected


def test_ranks_of_all_gpu_processes_are_told_and_nothing_else_of_their_environment(machine: FakeMachine) -> None:
    for pid, rank in ((RANK, 8), (401, 9)):
        machine.process(pid, environment=("RANK=%d" % rank, "WORLD_SIZE=16", "MASTER_ADDR=10.0.0.9", "TOKEN=secret"))
        connected(machine, pid)

    assert look(machine, RANK, 401) == Links(True, (OURS,), (), (8, 9), 16, "10.0.0.9")


def test_two_jobs_on_a_machine_have_no_one_size_and_no_one_master(machine: FakeMachine) -> None:
    for pid, size in ((RANK, 2), (401, 4)):
        machine.process(pid, environment=("RANK=1", "WORLD_SIZE=%d" % size, "MASTER_ADDR=10.0.0.%d" % size))
        connected(machine, pid)

    assert look(machine, RANK, 401) == Links(True, (OURS,), (), (1,))


def test_addresses_as_the_kernel_writes_them() -> None:
    assert [address_of(hexadecimal(text)) for text in ("10.0.0.5", "fd00::5")] == ["10.0.0.5", "fd00::5"]
    assert address_of(hexadecimal("::ffff:10.0.0.5")) == "10.0.0.5"
    assert [address_of(text) for text in ("", "XYZ", "0102")] == [None, None, None]


def test_own_addresses_are_this_machines_alone() -> None:
    found = own_addresses()

    assert all(is_address(address) for address in found)
    assert not any(address.startswith("127.") or address == "::1" for address in found)


# --- how often it is looked ---


class Counted:
    """In the place of jobs, holders, presence and links."""

    def __init__(self) -> None:
        self.looks: List[float] = []
        self.clients: Tuple[int, ...] = ()
        self.wants_clients = False

    def look(self, *given: Any) -> Any:
        self.looks.append(given[1] if len(given) > 1 else -1.0)
        return ()

    def note_clients(self, pids: Any) -> None:
        self.wants_clients = False

    def users(self) -> Any:
        return set()

    def all_known(self) -> bool:
        return True


def run(ratio: float, seconds: int, tmp_path: Path, wants: bool = False, broken: bool = False) -> Tuple[int, Any]:
    clock, jobs, around = ManualClock(), Counted(), Counted()
    links, holders = Counted(), Counted()
    holders.look = lambda *given: {}  # type: ignore[method-assign]
    if broken:
        around.look = links.look = lambda *given: {}["surprise"]  # type: ignore[method-assign]
    work = ProcWork(clock, jobs, holders, None, tmp_path, presence=around, links=links)  # type: ignore[arg-type]
    told: Any = None
    for _ in range(seconds // 5):
        clock.move(5.0)
        jobs.wants_clients = wants
        told = work.look(GpuSnapshot(gpus=(GpuReading("GPU-0", samples=(Sample(clock.boot_s(), ratio),), processes=0),), count=1))
    return len(links.looks), told


@pytest.mark.parametrize(
    ("ratio", "wants", "expected"), [(0.0, False, 20), (0.2, False, 20), (0.9, False, 5), (0.9, True, 120)], ids=["idle", "a little", "computes", "a new container"]
)
def test_people_are_looked_for_twice_a_minute_and_seldomer_where_gpus_compute(tmp_path: Path, ratio: float, wants: bool, expected: int) -> None:
    assert run(ratio, 600, tmp_path, wants)[0] == expected


def test_look_that_breaks_is_told_as_not_seen_and_costs_nothing_else(tmp_path: Path) -> None:
    _, told = run(0.0, 30, tmp_path, broken=True)

    assert told.jobs == ()
    assert told.presence.unread == ("who works here (KeyError)",)
    assert told.links == Links(whole=False)
