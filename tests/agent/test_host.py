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
from agent.host import ProcHost
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
    seen = ProcHost().read()

    assert seen.cpu_total_s is not None
    assert seen.cpu_busy_s is not None
    assert 0 < seen.cpu_busy_s <= seen.cpu_total_s
    assert seen.cpus == os.cpu_count()
    assert seen.mem_used_ratio is not None
    assert 0 < seen.mem_used_ratio < 1


STAT = "cpu  100 0 50 800 50 0 0 0 30 0\ncpu0 100 0 50 800 50 0 0 0 30 0\nprocesses 1000\n"


MEMORY = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 750 kB\n" + "".join("%s: 1 kB\n" % name for name in ("Buffers", "Cached", "Shmem", "Active", "Inactive"))


def counters(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The /proc, for psutil too, of a machine with every kind of disk and interface."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(root))
    (root / "net").mkdir(parents=True)
    disks = ("nvme0n1", "nvme0n1p1", "dm-0", "loop0")
    (root / "diskstats").write_text("".join(" 259 0 %s 9 9 20 9 9 9 3 9 9 9 9\n" % name for name in disks))
    lines = ["%6s: 1000 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0" % name for name in ("lo", "ens5", "docker0", "veth12")]
    (root / "net" / "dev").write_text("Inter-| Receive\n face |bytes\n" + "\n".join(lines) + "\n")
    (root / "stat").write_text(STAT)
    (root / "meminfo").write_text(MEMORY)
    return root


def test_counters_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ProcHost(counters(tmp_path / "proc", monkeypatch), tmp_path).read()
    ticks = os.sysconf("SC_CLK_TCK")

    assert (seen.cpu_busy_s, seen.cpu_total_s, seen.mem_used_ratio) == (150 / ticks, 1000 / ticks, 0.25)


def test_bytes_are_counted_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions, stacked devices, loopback and container pairs carry bytes that are counted elsewhere."""
    for name in ("nvme0n1", "dm-0", "loop0"):
        (tmp_path / "block" / name).mkdir(parents=True)
    (tmp_path / "class" / "net" / "ens5" / "device").mkdir(parents=True)
    seen = ProcHost(counters(tmp_path / "proc", monkeypatch), tmp_path).read()

    assert (seen.disk_bytes, seen.net_bytes) == (23 * 512, 1001)


@pytest.mark.parametrize("content", [None, "", "nonsense\n", "cpu 1 2\nnonsense nonsense nonsense\n: : :\n"], ids=["gone", "empty", "words", "odd"])
@pytest.mark.parametrize(
    ("file", "figures"),
    [
        ("stat", {"cpu_busy_s", "cpu_total_s"}),
        ("meminfo", {"mem_used_ratio"}),
        ("diskstats", {"disk_bytes"}),
        ("net/dev", {"net_bytes"}),
    ],
)
def test_counter_that_cannot_be_read_is_absent_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, figures: "set[str]", content: Optional[str]
) -> None:
    real = os.path.exists  # psutil looks below this machine's own /sys/block where there is no diskstats
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/sys/block" and real(path))
    proc = counters(tmp_path / "proc", monkeypatch)
    (proc / "1").mkdir()
    (proc / "1" / "comm").write_text("systemd\n")
    (proc / file).unlink()
    if content is not None:
        (proc / file).write_text(content)
    seen = ProcHost(proc, tmp_path).read()

    assert {name for name, value in vars(seen).items() if value is None} == figures


class Host:
    """A process table whose names can be changed; it counts how many names are read."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.root, self.forks, self.reads = root, 1000, 0
        real = host.name_of
        (root / "sys" / "kernel").mkdir(parents=True)
        (root / "sys" / "kernel" / "pid_max").write_text("32768\n")
        for pid in range(1, count + 1):
            self.name(pid, "sleep")
        self._watch = host.Orchestrators(root)

        def counting(pid: int, proc: Path) -> Optional[str]:
            self.reads += 1
            return real(pid, proc)

        monkeypatch.setattr(host, "name_of", counting)

    def name(self, pid: int, name: str) -> None:
        (self.root / str(pid)).mkdir(exist_ok=True)
        (self.root / str(pid) / "comm").write_text(name + "\n")

    def look(self) -> Optional[Tuple[str, ...]]:
        self.reads = 0
        return self._watch.look(self.forks)


def test_few_names_are_read_anew_each_time_on_a_crowded_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Host(tmp_path, monkeypatch, 320)
    reads = []
    for _ in range(4):
        crowd.look()
        reads.append(crowd.reads)

    assert reads == [321, 321, 21, 21]  # each twice, then a sixteenth; and process 1 first


def test_new_orchestrator_is_found_at_once_and_even_if_it_was_just_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Host(tmp_path, monkeypatch, 320)
    for _ in range(3):
        crowd.look()
    crowd.name(400, "kubelet")
    crowd.name(401, "sh")
    first = crowd.look()
    crowd.name(401, "slurmd")  # exec

    assert (first, crowd.look()) == (("kubelet",), ("kubelet", "slurmd"))


def test_new_orchestrator_on_a_very_crowded_host_is_found_at_the_second_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Host(tmp_path, monkeypatch, 600)
    for _ in range(3):
        crowd.look()
    crowd.name(700, "kubelet")
    seen = [crowd.look(), crowd.look(), crowd.look()]
    crowd.name(700, "bash")

    assert seen[1:] == [("kubelet",)] * 2
    assert crowd.look() == ()


def test_old_process_that_becomes_an_orchestrator_is_found_within_sixteen_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Host(tmp_path, monkeypatch, 320)
    for _ in range(3):
        crowd.look()
    crowd.name(177, "nomad")

    assert ("nomad",) in [crowd.look() for _ in range(16)]
    assert crowd.look() == ("nomad",)


def test_orchestrator_that_became_something_else_is_gone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Host(tmp_path, monkeypatch, 320)
    crowd.name(177, "raylet")
    seen = [crowd.look() for _ in range(4)]
    crowd.name(177, "bash")

    assert (seen, crowd.look()) == ([("raylet",)] * 4, ())


@pytest.mark.parametrize("forks", [40_000, 900, None], ids=["all_numbers_may_have_been_given_anew", "counter_ran_backwards", "not_known"])
def test_all_names_are_read_when_a_number_may_stand_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: Optional[int]
) -> None:
    crowd = Host(tmp_path, monkeypatch, 320)
    for _ in range(3):
        crowd.look()
    crowd.name(177, "kubelet")
    crowd.forks = forks  # type: ignore[assignment]

    assert crowd.look() == ("kubelet",)


def test_a_mount_is_never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead network mount would hold the agent in the kernel for hours."""

    def fail(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("looked at a mount")

    monkeypatch.setattr(os, "statvfs", fail)
    ProcHost().read()


BEFORE = HostReading(cpu_busy_s=100.0, cpu_total_s=1000.0, disk_bytes=1000, net_bytes=1000)


@pytest.mark.parametrize(
    ("now", "cpu", "disk", "net"),
    [
        (HostReading(cpu_busy_s=110.0, cpu_total_s=1040.0, disk_bytes=7000, net_bytes=1060), 0.25, 100.0, 1.0),
        (HostReading(cpu_busy_s=100.0, cpu_total_s=1040.0, disk_bytes=1000, net_bytes=1000), 0.0, 0.0, 0.0),
        (HostReading(), None, None, None),
        (HostReading(cpu_busy_s=90.0, cpu_total_s=1040.0, disk_bytes=10, net_bytes=10), None, None, None),
        (HostReading(cpu_busy_s=110.0, cpu_total_s=1000.0), None, None, None),
        (HostReading(cpu_busy_s=110.02, cpu_total_s=1010.01), 1.0, None, None),
    ],
    ids=["work", "true_zero", "unreadable", "counter_ran_backwards", "no_time_passed", "all_busy_and_waiting_ran_back_a_tick"],
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
