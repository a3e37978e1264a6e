"""
The local disks of this machine (instance store, local SSD): how each is used, how full, when last written.

A stop wipes them, so whatever cannot be told is told as "unknown" and never as empty.
Only names and counters of the kernel are read, and `statvfs` is asked of one kind of
mount alone: a local file system on these very devices that is reached without crossing
a network or FUSE mount, which could block for ever.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from os.path import join
from pathlib import Path
from typing import Callable, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from agent.report import MAX_ITEMS, Disk, Value

SYS, PROC, DEV = Path("/sys"), Path("/proc"), Path("/dev")
MOUNTED, UNMOUNTED, MEMBER, UNKNOWN = "mounted", "unmounted", "member", "unknown"

# Models that are disks over the network; a stop leaves them alone. Every other NVMe disk of this machine's own bus counts as local.
# https://docs.aws.amazon.com/ebs/latest/userguide/nvme-ebs-volumes.html (instance store is "Amazon EC2 NVMe Instance Storage")
# https://github.com/GoogleCloudPlatform/guest-configs (local SSD is "nvme_card", a persistent disk "nvme_card-pd")
_NETWORK_MODELS = ("Amazon Elastic Block Store", "nvme_card-pd")
_FABRICS = ("tcp", "rdma", "fc", "loop")
_LOCAL_SCSI_MODEL = "EphemeralDisk"  # Google's local SSD on SCSI

# Asking these for their size looks at memory only, and so does walking through them.
_LOOKED_AT = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})
_WALKED = _LOOKED_AT | {"tmpfs", "ramfs", "rootfs", "devtmpfs", "overlay", "squashfs", "erofs", "vfat", "zfs"}

WHOLE = 0.95
"""At least this share of a disk has to lie behind its mounts. The rest may hold an inactive volume or raw data."""


class Mount(NamedTuple):
    """A line of /proc/self/mountinfo. ``root``: which folder of the file system is seen at ``path``."""

    id: int
    device: str
    root: str
    path: str
    kind: str
    source: str


@dataclass(frozen=True, eq=False, repr=False)
class _Node(Value):
    """A whole device or a partition. ``path`` is below /sys; ``device`` as "259:1"; ``held``: something is stacked on it."""

    name: str
    path: str
    device: str
    size: int


class _Tops(NamedTuple):
    nodes: Tuple[_Node, ...]
    stacked: bool


class _Cannot(Exception):
    """Something that has to be read to tell how a disk is used cannot be."""


def look(path: str, device: str) -> Optional[float]:
    """The used share (0..1) of the file system at ``path``, if what is found there is ``device`` ("259:1"); None: it is not, or not readable."""
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd).st_dev
        if "%d:%d" % (os.major(found), os.minor(found)) != device:
            return None
        room = os.fstatvfs(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    return (room.f_blocks - room.f_bfree) / room.f_blocks if room.f_blocks > 0 else None


class LocalDisks:
    """The real source. ``sys``, ``proc``, ``dev``: roots to read below; ``look`` asks a mount how full it is."""

    def __init__(
        self, sys: Path = SYS, proc: Path = PROC, dev: Path = DEV, look: Callable[[str, str], Optional[float]] = look
    ) -> None:
        # Texts, not Paths: each step of a Path is interned, and the interpreter's table of those grows with what comes and goes.
        self._block, self._proc, self._dev, self._look = join(sys, "block"), str(proc), str(dev), look
        self._written: Dict[str, Tuple[Tuple[int, int], float]] = {}  # counters, and since when they stand at least
        self._seen: Set[str] = set()

    def read(self, now_s: float, end_s: float) -> Optional[Tuple[Disk, ...]]:
        """
        Every local disk; () is "looked, none", None "could not look". ``now_s``: the boot clock; ages are told as of
        ``end_s``, the window's end. A disk that was there once and is gone is told as unknown.
        """
        try:
            names = sorted(os.listdir(self._block))
        except OSError:
            return None
        google = self._google()
        local = {name: kind for name in names for kind in (self._is_local(name, google),) if kind is not False}
        try:
            mounts: Optional[List[Mount]] = self._mounts()
            swaps = self._swaps()
        except (OSError, ValueError):
            mounts, swaps = None, frozenset()
        disks = []
        for name in sorted(self._seen | set(local)):
            known = local.get(name)
            disk = Disk(name, UNKNOWN) if known is None or mounts is None else self._disk(name, mounts, swaps)
            written = self._age(name, now_s, end_s) if name in local else None
            disks.append(Disk(disk.device, disk.use, disk.mount, None, disk.used_ratio, written))
        self._seen.update(local)
        return tuple(disks) if len(disks) <= MAX_ITEMS else None

    # --- which disks are local ---

    def _google(self) -> FrozenSet[str]:
        folder = join(self._dev, "disk", "by-id")
        try:
            links = os.listdir(folder)
        except OSError:
            return frozenset()
        return frozenset(os.path.basename(os.path.realpath(join(folder, link))) for link in links if link.startswith("google-local-"))

    def _is_local(self, name: str, google: FrozenSet[str]) -> Optional[bool]:
        """None: it may be."""
        if name in google:
            return True
        folder = join(self._block, name)
        model = _text(join(folder, "device", "model"))
        if not name.startswith("nvme"):
            return model == _LOCAL_SCSI_MODEL
        if _text(join(folder, "hidden")) == "1" or _text(join(folder, "device", "transport")) in _FABRICS:
            return False  # one of several paths to a disk that is listed itself; a disk over the network
        if model is None:
            return None
        return not model.startswith(_NETWORK_MODELS)

    # --- how one is used ---

    def _disk(self, name: str, mounts: List[Mount], swaps: FrozenSet[str]) -> Disk:
        try:
            tops = self._tops(self._node(join(self._block, name)), 0)
            swapped = any(node.name in swaps for node in tops.nodes)
            behind = [self._mounts_of(node, mounts) for node in tops.nodes]
            whole = self._whole(tops.nodes)
        except (OSError, ValueError, _Cannot):
            return Disk(name, UNKNOWN)
        everywhere = bool(behind) and all(behind) and whole and not swapped
        use = MEMBER if tops.stacked or swapped else MOUNTED if everywhere else UNMOUNTED
        if not everywhere:
            return Disk(name, use)
        roots = {mount.path for found in behind for mount in found if mount.root == "/"}
        alone = len(roots) == 1 and len(behind) == 1
        used = [self._used(found, mounts) for found in behind]
        known = [ratio for ratio in used if ratio is not None]
        ratio = max(known) if len(known) == len(used) else None
        path = roots.pop() if alone else None
        return Disk(name, use, path if path is not None and _tellable(path) else None, None, ratio)

    def _node(self, path: str) -> _Node:
        device, size, name = _text(join(path, "dev")), _text(join(path, "size")), os.path.basename(path)
        if device is None or size is None:
            raise _Cannot(name)
        return _Node(name, path, device, int(size))

    def _tops(self, node: _Node, depth: int) -> _Tops:
        """The devices on top of this one, on which a file system can be: itself, its partitions, or what is stacked on them."""
        if depth > 8:
            raise _Cannot(node.name)
        found: Dict[str, _Node] = {}
        stacked = False
        inside = os.listdir(node.path)
        holders = os.listdir(join(node.path, "holders"))
        for name in holders:
            stacked = True
            found.update({top.name: top for top in self._tops(self._node(join(self._block, name)), depth + 1).nodes})
        for name in inside:
            if name.startswith(node.name) and os.path.exists(join(node.path, name, "partition")):
                tops = self._tops(self._node(join(node.path, name)), depth + 1)
                stacked = stacked or tops.stacked
                found.update({top.name: top for top in tops.nodes})
        if not found:
            found[node.name] = node
        return _Tops(tuple(found.values()), stacked)

    def _whole(self, tops: Tuple[_Node, ...]) -> bool:
        """Whether next to nothing of the disks below lies outside of ``tops``."""
        bases: Dict[str, int] = {}
        for top in tops:
            self._below(top.name, bases, 0)
        below = sum(bases.values())
        return below > 0 and sum(top.size for top in tops) >= WHOLE * below

    def _below(self, name: str, bases: Dict[str, int], depth: int) -> None:
        path = join(self._block, name)
        if not os.path.isdir(path):  # a partition: all of its disk counts
            disks = [disk for disk in os.listdir(self._block) if name.startswith(disk) and os.path.isdir(join(self._block, disk, name))]
            if len(disks) != 1:
                raise _Cannot(name)
            name, path = disks[0], join(self._block, disks[0])
        slaves = os.listdir(join(path, "slaves")) if os.path.isdir(join(path, "slaves")) else []
        if depth > 8:
            raise _Cannot(name)
        for slave in slaves:
            self._below(slave, bases, depth + 1)
        if not slaves:
            bases[name] = self._node(path).size

    # --- mounts ---

    def _mounts(self) -> List[Mount]:
        with open(join(self._proc, "self", "mountinfo"), encoding="utf-8", errors="surrogateescape") as file:
            return [mount for line in file for mount in (_mount(line),) if mount is not None]

    def _swaps(self) -> FrozenSet[str]:
        try:
            with open(join(self._proc, "swaps"), encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read().splitlines()[1:]
        except FileNotFoundError:  # a kernel without swapping
            return frozenset()
        return frozenset(self._resolved(_unescaped(line.split()[0])) for line in lines if line.strip())

    def _resolved(self, source: str) -> str:
        """The kernel's name of a device that a mount or swap names, which may be a link such as /dev/mapper/scratch; "" for anything else."""
        if not source.startswith("/dev/"):
            return ""
        return os.path.basename(os.path.realpath(join(self._dev, source[len("/dev/") :])))

    def _mounts_of(self, node: _Node, mounts: List[Mount]) -> List[Mount]:
        return [m for m in mounts if m.device == node.device or self._resolved(m.source) == node.name]

    def _used(self, found: List[Mount], mounts: List[Mount]) -> Optional[float]:
        """Of the first of its mounts that can be asked without risk."""
        for mount in found:
            if mount.kind not in _LOOKED_AT or not _reachable(mount, mounts):
                continue
            ratio = self._look(mount.path, mount.device)
            if ratio is not None and math.isfinite(ratio) and 0.0 <= ratio <= 1.0:
                return min(1.0, math.ceil(ratio * 1e4) / 1e4)
        return None

    # --- writes ---

    def _age(self, name: str, now_s: float, end_s: float) -> Optional[float]:
        """
        Seconds at least since the last write; None until it was watched from one window to the next. What was written
        between two looks counts as written now.
        """
        counters = self._counters(name)
        if counters is None:
            self._written.pop(name, None)
            return None
        before = self._written.get(name)
        if before is None:
            self._written[name] = (counters, now_s)
            return None
        if before[0] != counters:
            self._written[name] = (counters, now_s)
            return 0.0
        return float(math.floor(max(0.0, end_s - before[1])))

    def _counters(self, name: str) -> Optional[Tuple[int, int]]:
        """Writes and sectors written since boot. Where the kernel was told not to count, they stand still and mean nothing."""
        if _text(join(self._block, name, "queue", "iostats")) == "0":
            return None
        # https://docs.kernel.org/block/stat.html
        fields = (_text(join(self._block, name, "stat")) or "").split()
        if len(fields) < 7 or not (fields[4].isdigit() and fields[6].isdigit()):
            return None
        return int(fields[4]), int(fields[6])


def _reachable(mount: Mount, mounts: List[Mount]) -> bool:
    """Whether the path leads to this mount, and through nothing that could block."""
    on_top = [m for m in mounts if m.path == mount.path]
    if not on_top or on_top[-1].device != mount.device:
        return False  # something else is mounted over it
    above = [m for m in mounts if m.path != mount.path and (m.path == "/" or mount.path.startswith(m.path + "/"))]
    return all(m.kind in _WALKED for m in above)


def _mount(line: str) -> Optional[Mount]:
    # https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
    left, dash, right = line.rstrip("\n").partition(" - ")
    first, last = left.split(" "), right.split(" ")
    if not dash or len(first) < 6 or len(last) < 2:
        return None
    return Mount(int(first[0]), first[2], _unescaped(first[3]), _unescaped(first[4]), last[0], _unescaped(last[1]))


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def _tellable(path: str) -> bool:
    """Whether the wire takes it as it is: a path that had to be changed would be another one."""
    return path.isprintable() and 0 < len(path) <= 256


def _text(path: str) -> Optional[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return None
