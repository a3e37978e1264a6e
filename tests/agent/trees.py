"""A temporary /sys, /proc and /dev with disks in them, as the kernel shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional, Tuple

from agent.disks import LocalDisks

EC2, EBS = "Amazon EC2 NVMe Instance Storage", "Amazon Elastic Block Store"
GIB = 1 << 21  # in sectors


class Disks:
    """``full``: the used share of the file system on a device number; what was asked stands in ``asked``."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc, self.dev = root / "sys", root / "proc", root / "dev"
        self.asked: List[str] = []
        self.full: Dict[str, float] = {}
        self._mounts: List[str] = []
        self._number = 0
        (self.sys / "block").mkdir(parents=True)
        (self.proc / "self").mkdir(parents=True)
        self.dev.mkdir()
        self.mount("8:1", "/", "/dev/root")
        self.swaps()

    def source(self) -> LocalDisks:
        return LocalDisks(self.sys, self.proc, self.dev, self._look)

    def _look(self, path: str, device: str) -> Optional[float]:
        self.asked.append(path)
        return self.full.get(device, 0.004)

    def disk(self, name: str = "nvme1n1", model: Optional[str] = EC2, gib: int = 900, partitions: Tuple[int, ...] = ()) -> str:
        """A whole disk, with partitions of so many GiB; its device number."""
        folder = self.sys / "block" / name
        number = self._node(folder, gib)
        self._text(folder / "queue" / "iostats", "1")
        (folder / "device").mkdir()
        if model is not None:
            self._text(folder / "device" / "model", model.ljust(40))
        for i, size in enumerate(partitions, 1):
            part = folder / ("%sp%d" % (name, i))
            self._node(part, size)
            self._text(part / "partition", str(i))
        self.written(name, 10, 80)
        return number

    def stack(self, name: str, *below: str, gib: int = 900) -> str:
        """A mapped or RAID device on top of these (disk or disk/partition); its device number."""
        folder = self.sys / "block" / name
        number = self._node(folder, gib)
        (folder / "slaves").mkdir()
        for slave in below:
            (self.sys / "block" / slave / "holders" / name).mkdir()
            (folder / "slaves" / slave.rpartition("/")[2]).mkdir()
        return number

    def number(self, node: str) -> str:
        return (self.sys / "block" / node / "dev").read_text().strip()

    def _node(self, folder: Path, gib: int) -> str:
        (folder / "holders").mkdir(parents=True)
        self._number += 1
        self._text(folder / "dev", "259:%d" % self._number)
        self._text(folder / "size", str(gib * GIB))
        self._text(self.dev / folder.name, "")
        return "259:%d" % self._number

    def mount(self, device: str, path: str, source: str, kind: str = "ext4", root: str = "/") -> None:
        number = 20 + len(self._mounts)
        self._mounts.append("%d 1 %s %s %s rw,relatime shared:1 - %s %s rw\n" % (number, device, root, path, kind, source))
        (self.proc / "self" / "mountinfo").write_text("".join(self._mounts))

    def swaps(self, *names: str) -> None:
        lines = ["/dev/%s partition 8388604 0 -2\n" % name for name in names]
        (self.proc / "swaps").write_text("Filename Type Size Used Priority\n" + "".join(lines))

    def written(self, name: str, writes: int, sectors: int) -> None:
        self._text(self.sys / "block" / name / "stat", "  500  0 4000 20  %d  3  %d  9  0  40  60  0 0 0 0" % (writes, sectors))

    def _text(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
