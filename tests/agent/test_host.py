"""Host counters, orchestrators, nobody's work, the PCI bus, and the rates made of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import psutil
import pytest

from agent import host, pci
from agent.build import host as rates
from agent.build import totals
from agent.host import PsutilHost
from agent.readings import HostReading
from agent.report import Gpu


def processes(root: Path, names: Dict[int, Optional[str]]) -> Path:
    for pid, name in names.items():
        (root / str(pid)).mkdir()
        if name is not None:
            (root / str(pid) / "comm").write_text(name + "\n")
    (root / "meminfo").write_text("")
    return root


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({1: "systemd", 20: "slurmd"}, ("slurmd",)),
        ({1: "systemd", 20: "kubelet", 21: "raylet", 22: "nomad"}, ("kubelet", "nomad", "raylet")),
        ({1: "systemd", 20: "k3s-agent"}, ("kubelet",)),
        ({1: "systemd", 20: "bash", 21: "slurmd-like"}, ()),
        ({1: "systemd", 20: None}, ()),
        ({1: None, 20: "bash"}, None),
        ({}, None),
    ],
    ids=["one", "three", "k3s_is_a_kubelet", "looked_and_none", "one_process_went_away", "processes_are_hidden", "no_proc"],
)
def test_orchestrators(tmp_path: Path, names: Dict[int, Optional[str]], expected: Optional[Tuple[str, ...]]) -> None:
    assert host.orchestrators(processes(tmp_path, names)) == expected


def test_orchestrator_that_starts_under_a_known_pid_is_found(tmp_path: Path) -> None:
    processes(tmp_path, {1: "systemd", 20: "systemd"})
    before = host.orchestrators(tmp_path)
    (tmp_path / "20" / "comm").write_text("slurmd\n")  # exec: same pid, new program

    assert (before, host.orchestrators(tmp_path)) == ((), ("slurmd",))


def test_nobodys_work_goes_by_the_kernels_short_name(tmp_path: Path) -> None:
    processes(tmp_path, {7: "nvidia-cuda-mps", 8: "python3"})
    nobodys = host.nobodys_work(("Xorg", "nvidia-cuda-mps-server"), tmp_path)

    assert [nobodys(pid) for pid in (7, 8, 9)] == [True, False, False]


def test_this_machine_can_be_read() -> None:
    seen = PsutilHost().read()

    assert seen.cpu_total_s is not None
    assert seen.cpu_busy_s is not None
    assert 0 < seen.cpu_busy_s <= seen.cpu_total_s
    assert seen.cpus == psutil.cpu_count()
    assert seen.mem_used_ratio is not None
    assert 0 < seen.mem_used_ratio < 1


class Counters:
    def __init__(self, **facts: int) -> None:
        self.__dict__.update(facts)


def test_bytes_are_counted_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions, stacked devices, loopback and container pairs carry bytes that are counted elsewhere."""
    for name in ("nvme0n1", "dm-0", "loop0"):
        (tmp_path / "block" / name).mkdir(parents=True)
    (tmp_path / "class" / "net" / "ens5" / "device").mkdir(parents=True)
    disks = {n: Counters(read_bytes=100, write_bytes=10) for n in ("nvme0n1", "nvme0n1p1", "dm-0", "loop0")}
    cards = {n: Counters(bytes_recv=1000, bytes_sent=1) for n in ("lo", "ens5", "docker0", "veth12")}
    monkeypatch.setattr(psutil, "disk_io_counters", lambda perdisk: disks)
    monkeypatch.setattr(psutil, "net_io_counters", lambda pernic: cards)
    seen = PsutilHost(sys=tmp_path).read()

    assert (seen.disk_bytes, seen.net_bytes) == (110, 1001)


@pytest.mark.parametrize("error", [PermissionError("no"), psutil.AccessDenied(), FileNotFoundError("gone"), RuntimeError("odd")])
def test_counter_that_cannot_be_read_is_absent(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(**arguments: Any) -> Any:
        raise error

    monkeypatch.setattr(psutil, "disk_io_counters", fail)
    monkeypatch.setattr(psutil, "net_io_counters", fail)
    seen = PsutilHost().read()

    assert (seen.disk_bytes, seen.net_bytes) == (None, None)
    assert seen.cpus is not None


def test_a_mount_is_never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead network mount would hold the agent in the kernel for hours."""

    def fail(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("looked at a mount")

    for owner, name in ((os, "statvfs"), (psutil, "disk_usage"), (psutil, "disk_partitions")):
        monkeypatch.setattr(owner, name, fail)
    PsutilHost().read()


BEFORE = HostReading(cpu_busy_s=100.0, cpu_total_s=1000.0, disk_bytes=1000, net_bytes=1000)


@pytest.mark.parametrize(
    ("now", "cpu", "disk", "net"),
    [
        (HostReading(cpu_busy_s=110.0, cpu_total_s=1040.0, disk_bytes=7000, net_bytes=1060), 0.25, 100.0, 1.0),
        (HostReading(cpu_busy_s=100.0, cpu_total_s=1040.0, disk_bytes=1000, net_bytes=1000), 0.0, 0.0, 0.0),
        (HostReading(), None, None, None),
        (HostReading(cpu_busy_s=90.0, cpu_total_s=1040.0, disk_bytes=10, net_bytes=10), None, None, None),
        (HostReading(cpu_busy_s=110.0, cpu_total_s=1000.0), None, None, None),
    ],
    ids=["work", "true_zero", "unreadable", "counter_ran_backwards", "no_time_passed"],
)
def test_rates(now: HostReading, cpu: Optional[float], disk: Optional[float], net: Optional[float]) -> None:
    made = rates(BEFORE, now, 60.0)

    assert (made.cpu_ratio, made.disk_bytes_per_s, made.net_bytes_per_s) == (cpu, disk, net)
    assert made.orchestrators is None


@pytest.mark.parametrize(
    ("energies", "expected_gpus", "total"),
    [([5.0, 7.0], 2, 12.0), ([5.0, None], 2, None), ([5.0], 2, None), ([], 0, None), ([5.0], None, 5.0)],
    ids=["all", "one_unreadable", "one_gone", "no_gpu", "count_unknown"],
)
def test_energy_of_all_gpus_or_none(energies: "list[Optional[float]]", expected_gpus: Optional[int], total: Optional[float]) -> None:
    gpus = [Gpu("GPU-%d" % i, energy_j=e) for i, e in enumerate(energies)]

    assert totals(HostReading(), gpus, expected_gpus).gpu_energy_j == total


def test_pci_bus_counts_gpus_and_not_their_neighbours(tmp_path: Path) -> None:
    devices = {"gpu": ("0x10de", "0x030200"), "vga": ("0x10de", "0x030000"), "nvswitch": ("0x10de", "0x068000"), "audio": ("0x10de", "0x040300"),
               "amd": ("0x1002", "0x038000"), "instinct": ("0x1002", "0x120000"), "amazon": ("0x1d0f", "0x030000"), "nic": ("0x15b3", "0x020000")}  # fmt: skip
    for name, (vendor, kind) in devices.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    (tmp_path / "unplugged").mkdir()

    assert pci.count(tmp_path) == (2, 2)
    assert pci.count(tmp_path / "none") == (0, 0)
    assert pci.count(tmp_path / "gpu" / "vendor") is None
