"""
To which other machines the processes that hold GPUs are connected, and which ranks of a job they say they are.

Established TCP connections of those processes (by their own descriptors, in their own network namespace), of who started
them, up to the shell, and of nobody else. Of the environment only ranks, their number and the master's address are
taken, and only the numbers of processes and these leave the machine.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from agent import doors
from agent.asked import Asked, Identity
from agent.launchers import SHELLS
from agent.procs import PROC, Procs
from agent.report import Links, is_address

MOST_PEERS, MOST_OWN, MOST_RANKS = 32, 16, 64
MOST_PROCESSES = 64
MOST_DESCRIPTORS = 4096  # of one process
MOST_BYTES = 1 << 20  # of one table of connections
_MOST_PARENTS = 8
_ESTABLISHED = "01"
_NOT_OURS_ALONE = re.compile(r"^(lo$|docker|br-|veth|virbr|cni|flannel|cali|lxc|podman)")
_LINK_LOCAL_OR_NOWHERE = re.compile(r"^(127\.|169\.254\.|0\.|::1$|::$|fe80:)")
_NAMED_BY_ITS_ADDRESS = re.compile(r"^ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(\.|$)")
# Who tells a rank, and of how many: torchrun and most launchers; slurm; Open MPI; MPICH and its kin.
_RANKS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
_MASTERS = ("MASTER_ADDR", "PET_RDZV_ENDPOINT", "JAX_COORDINATOR_ADDRESS", "NCCL_COMM_ID")


class Told(NamedTuple):
    """What a process was told by who started it. None: nothing of the kind."""

    rank: Optional[int] = None
    world_size: Optional[int] = None
    master: Optional[str] = None


def own_addresses() -> Tuple[str, ...]:
    """Of this machine, those that only it can have; the bridges of containers are the same on every machine."""
    import psutil  # loaded by the host's counters by then

    try:
        interfaces = psutil.net_if_addrs()
    except OSError:
        return ()
    found = {
        one.address.partition("%")[0]
        for name, several in interfaces.items()
        if not _NOT_OURS_ALONE.match(name)
        for one in several
        if one.family in (socket.AF_INET, socket.AF_INET6)
    }
    return tuple(sorted(address for address in found if not _LINK_LOCAL_OR_NOWHERE.match(address)))[:MOST_OWN]


class LinkLook:
    """Looks when it is asked to; remembers only what the processes of now were told."""

    def __init__(self, procs: Procs, proc: "os.PathLike[str]" = PROC, own: Callable[[], Tuple[str, ...]] = own_addresses) -> None:
        self._procs, self._proc, self._own = procs, os.fspath(proc), own
        self._told = Asked(self._read_told)

    def look(self, pids: Sequence[int]) -> Optional[Links]:
        """``pids``: those that hold GPUs, as far as the driver names them. None: none of them can be seen, or there is none."""
        born: Dict[int, int] = {}
        for pid in sorted(set(pids))[:MOST_PROCESSES]:
            stat = self._procs.stat(pid)
            if stat is not None and stat.lives:
                born[pid] = stat.born
        if not born:
            return None
        whole = len(born) == len(set(pids))
        sockets: Dict[str, Set[str]] = {}  # by network namespace
        through: Dict[str, int] = {}  # a process of each
        for pid in self._with_launchers(born):
            seen = self._sockets(pid)
            if seen is None:
                whole = False
                continue
            space, inodes = seen
            sockets.setdefault(space, set()).update(inodes)
            through.setdefault(space, pid)
        if not sockets:
            return None
        own = self._own()
        peers: Set[str] = set()
        for space, inodes in sockets.items():
            found = self._peers(through[space], inodes) if inodes else set()
            whole = whole and found is not None
            peers |= found or set()
        peers -= set(own)
        told = self._ranks(born)
        ranks = {one.rank for one in told if one.rank is not None}
        sizes = {one.world_size for one in told if one.world_size is not None}
        masters = {one.master for one in told if one.master is not None}
        return Links(
            whole=whole and len(peers) <= MOST_PEERS,
            addresses=own,
            peers=tuple(sorted(peers, key=lambda address: (not _is_private(address), address))[:MOST_PEERS]),
            ranks=tuple(sorted(ranks)[:MOST_RANKS]),
            world_size=sizes.pop() if len(sizes) == 1 else None,
            master=masters.pop() if len(masters) == 1 else None,
        )

    def _with_launchers(self, holders: Mapping[int, int]) -> List[int]:
        """Those, and who started them, up to a shell or a door."""
        found: Dict[int, None] = dict.fromkeys(holders)
        for pid in list(holders):
            stat = self._procs.stat(pid)
            for _ in range(_MOST_PARENTS):
                parent = stat.parent if stat is not None else 0
                stat = self._procs.stat(parent) if parent > 1 and parent not in found else None
                if stat is None or stat.name in SHELLS or stat.name in doors.INITS or doors.door(stat.name) is not None:
                    break
                found[parent] = None
        return list(found)

    def _sockets(self, pid: int) -> Optional[Tuple[str, Set[str]]]:
        """Its network namespace, and the numbers of its sockets. None: not allowed to look, or too many."""
        base = "%s/%d" % (self._proc, pid)
        try:
            space = os.readlink(base + "/ns/net")
            names = os.listdir(base + "/fd")
        except OSError:
            return None
        if len(names) > MOST_DESCRIPTORS:
            return None
        inodes = set()
        for name in names:
            try:
                target = os.readlink("%s/fd/%s" % (base, name))
            except OSError:
                continue  # closed meanwhile
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
        return space, inodes

    def _peers(self, pid: int, inodes: Set[str]) -> Optional[Set[str]]:
        peers: Set[str] = set()
        seen = False
        for table in ("tcp", "tcp6"):
            text = self._table("%s/%d/net/%s" % (self._proc, pid, table))
            if text is None:
                if table == "tcp":
                    return None
                continue  # a kernel without IPv6
            seen = True
            for line in text.splitlines()[1:]:
                words = line.split(None, 10)
                if len(words) > 9 and words[3] == _ESTABLISHED and words[9] in inodes:
                    address = address_of(words[2].partition(":")[0])
                    if address is not None and not _LINK_LOCAL_OR_NOWHERE.match(address):
                        peers.add(address)
        return peers if seen else None

    @staticmethod
    def _table(path: str) -> Optional[str]:
        """None: unreadable, or longer than is read."""
        try:
            with open(path, "rb", buffering=0) as file:
                parts: List[bytes] = []
                size = 0
                while size <= MOST_BYTES:
                    part = file.read(65536)
                    if not part:
                        return b"".join(parts).decode("ascii", "replace")
                    parts.append(part)
                    size += len(part)
        except OSError:
            return None
        return None

    # --- what the job says of itself ---

    def _ranks(self, born: Mapping[int, int]) -> List[Told]:
        identities: List[Identity] = list(born.items())
        return [told for told in self._told.of(identities).values() if told is not None]

    def _read_told(self, pid: int) -> Optional[Told]:
        text = self._procs.text("%d/environ" % pid)
        return told_by(text) if text is not None else None


def told_by(environment: str) -> Told:
    """Of an environment as the kernel shows it; what is not asked for is not kept."""
    wanted = {name for pair in _RANKS for name in pair} | set(_MASTERS)
    values = {name: value for name, _, value in (entry.partition("=") for entry in environment.split("\0")) if name in wanted}
    for rank, size in _RANKS:
        mine, all_of_them = values.get(rank, ""), values.get(size, "")
        if mine.isdigit() and all_of_them.isdigit() and int(mine) < int(all_of_them) <= 1_000_000:
            return Told(int(mine), int(all_of_them), _master(values))
    return Told(master=_master(values))


def _master(values: Mapping[str, str]) -> Optional[str]:
    """An address, or a name that is one written out; no other name is sent, nor asked for: that could block."""
    for name in _MASTERS:
        value = values.get(name, "").strip()
        host = value if is_address(value) else value.rpartition(":")[0].strip("[]") if ":" in value else value
        spelt = _NAMED_BY_ITS_ADDRESS.match(host)
        host = ".".join(spelt.groups()[:4]) if spelt is not None else host
        if is_address(host) and not _LINK_LOCAL_OR_NOWHERE.match(host):
            return host
    return None


def address_of(hexadecimal: str) -> Optional[str]:
    """An address of /proc/net/tcp or tcp6: words of 32 bits in the machine's own order. One that IPv6 only carries is told as IPv4."""
    if len(hexadecimal) not in (8, 32):
        return None
    try:
        raw = b"".join(struct.pack("=I", int(hexadecimal[at : at + 8], 16)) for at in range(0, len(hexadecimal), 8))
    except ValueError:
        return None
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, raw)
    return socket.inet_ntop(socket.AF_INET, raw[12:]) if raw[:12] == b"\0" * 10 + b"\xff\xff" else socket.inet_ntop(socket.AF_INET6, raw)


def _is_private(address: str) -> bool:
    return re.match(r"10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|100\.|f[cd]", address) is not None
