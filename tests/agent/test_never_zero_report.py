"""
From the driver and /proc to the bytes of the report: whatever fails on a machine at work, in whatever order, no figure of it
is told as zero, empty, ended or "none there".
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent.gpu import MOST_RETRY_S, NvmlGpus
from agent.host import ProcHost
from agent.identity import Identity
from agent.job_memory import JobMemory
from agent.jobs import Jobs
from agent.launchers import Launchers
from agent.loader import ProcLoaders
from agent.loop import Loop
from agent.pci import PciGpus
from agent.people import Holders, Names, ProcWork
from agent.readings import Reading
from agent.report import Report, decode, encode
from agent.sampler import Sampler, Stuck
from agent.state import load_memory
from tests.agent.doubles import BOOT, RESOURCE, KeptReports, Lines, ManualClock
from tests.agent.doubles import settings as make_settings
from tests.agent.fakeproc import HZ, FakeMachine
from tests.agent.test_never_zero import CALLS, CODES, BusyDriver, Thing
from tests.agent.trees import Disks

PID, KUBELET, BEAT_S = 4242, 900, 5.0
FILES = (
    "proc/stat", "proc/meminfo", "proc/diskstats", "proc/net/dev", "proc/1/comm", "proc/1/stat", "proc/self/mountinfo",
    "proc/%d/stat" % PID, "proc/%d/io" % PID, "proc/%d/cgroup" % PID, "proc/%d/status" % PID, "proc/%d/task/%d/children" % (PID, PID),
    "sys/block/nvme1n1/stat", "sys/block/nvme1n1/device/model", "sys/block/nvme1n1/size", "pts/0",
)  # fmt: skip


class Driver(BusyDriver):
    """``waiting``: the GPUs stand nearly still, since their process waits for its data. ``count``: what the driver lists."""

    def __init__(self, clock: ManualClock, waiting: bool) -> None:
        super().__init__(clock)
        self.waiting, self.count, self.joules = waiting, 2, 9_000_000

    def answer(self, name: str, arguments: Any) -> Any:
        said = super().answer(name, arguments)
        if name == "nvmlDeviceGetCount":
            return self.count
        if name == "nvmlDeviceGetTotalEnergyConsumption":
            return self.joules
        if name == "nvmlDeviceGetComputeRunningProcesses":
            return [Thing(pid=PID, usedGpuMemory=5 << 30)]
        if self.waiting and name == "nvmlDeviceGetUtilizationRates":
            return Thing(gpu=3)
        if self.waiting and name == "nvmlDeviceGetSamples":
            return said[0], [Thing(timeStamp=one.timeStamp, sampleValue=Thing(uiVal=3)) for one in said[1][1:]]
        return said


class Inline(Sampler):
    """Reads in the loop's own thread. ``hung``: a driver call does not return."""

    def __init__(self, gpus: Any, loaders: Any, work: Any, log: Lines) -> None:
        self._gpus, self._loaders, self._work, self._log = gpus, loaders, work, log
        self.hung = 0

    def beat(self) -> List[Reading]:
        return [] if self.hung else [self._read()]

    def stuck(self) -> Optional[Stuck]:
        return Stuck("a call", BEAT_S * self.hung) if self.hung >= 2 else None


class Machine:
    """One process works on both GPUs: it computes, reads its data and writes to the local disk at every beat."""

    def __init__(self, root: Path, waiting: bool) -> None:
        self.root, self.clock, self.log = root, ManualClock(), Lines()
        self.driver = Driver(self.clock, waiting)
        self.out = KeptReports()
        self.beats, self.cpu = 0, 20 if waiting else 300
        self.disks = Disks(root)
        self.device = self.disks.disk("nvme1n1")
        self.disks.mount(self.device, "/scratch", "/dev/nvme1n1")
        self.disks.full[self.device] = 0.5
        self.processes = FakeMachine(root / "tree")
        os.rename(root / "tree" / "proc" / "self" / "ns", root / "proc" / "self" / "ns")
        for folder in list((root / "tree" / "proc").iterdir()):
            if folder.name.isdigit():
                os.rename(folder, root / "proc" / folder.name)
        self.processes.proc = root / "proc"
        self.processes.process(PID, born_s=500.0)
        self.processes.process(KUBELET, "kubelet", parent=1, cgroup="/system.slice/kubelet.service", uid=0)
        (root / "proc" / str(PID) / "task" / str(PID)).mkdir(parents=True)
        (root / "proc" / str(PID) / "task" / str(PID) / "children").write_text("")
        (root / "proc" / "1" / "comm").write_text("systemd\n")
        (root / "proc" / str(KUBELET) / "comm").write_text("kubelet\n")
        (root / "proc" / "net").mkdir()
        (root / "pts").mkdir()
        (root / "pts" / "0").write_text("")
        self.works()
        self.start()

    def start(self) -> None:
        """The agent, anew: with nothing but what it kept on disk."""
        proc, procs = self.root / "proc", self.processes.procs
        gpus = NvmlGpus(self.clock, lambda pid: False, self.log, load=lambda: self.driver, bus=lambda: PciGpus(2, 0), integrated=lambda: False)
        loaders, names = ProcLoaders(proc, HZ), Names(lambda uid: "ada")
        jobs = Jobs(procs, Launchers(procs), born=loaders.born, memory=JobMemory(self.root / "state", BOOT, self.log))
        work = ProcWork(self.clock, jobs, Holders(procs, names, loaders.born), names, self.root / "pts")
        config = make_settings(self.root)
        self.sampler = Inline(gpus, loaders, work, self.log)
        memory = load_memory(config.state_dir, self.log)
        self.loop = Loop(
            config, self.sampler, ProcHost(proc, self.root / "sys"), self.out, lambda: Identity(RESOURCE), BOOT, self.clock, self.log, memory, self.disks.source()
        )

    def works(self) -> None:
        """What the kernel's counters show of one beat more."""
        self.beats += 1
        n, proc = self.beats, self.root / "proc"
        self.driver.joules += int(400_000 * BEAT_S)
        self.disks.written("nvme1n1", 10 + n, 80 + 1000 * n)
        texts: Dict[str, str] = {
            "stat": "cpu  %d 0 0 %d 0 0 0 0 0 0\nbtime 1\nprocesses %d\n" % (1000 + self.cpu * n, 1000 + (1000 - self.cpu) * n, 1000 + n),
            "meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\n"
            + "".join("%s: 1 kB\n" % name for name in ("Buffers", "Cached", "Shmem", "Active", "Inactive")),
            "diskstats": " 259 0 nvme1n1 9 9 %d 9 9 9 3 9 9 9 9\n" % (20 + 1000 * n),
            "net/dev": "Inter-| Receive\n face |bytes\n  ens5: %d 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n" % (1000 + 1000 * n),
            "%d/io" % PID: "rchar: 1\nread_bytes: %d\nwrite_bytes: 5\n" % (1000 * n),
        }
        for name, text in texts.items():
            (proc / name).write_text(text)
        fields = (proc / str(PID) / "stat").read_text().rpartition(") ")
        words = fields[2].split()
        words[11] = str(self.cpu * n)
        (proc / str(PID) / "stat").write_text(fields[0] + fields[1] + " ".join(words))

    @contextlib.contextmanager
    def without(self, files: Set[Tuple[str, bool]]) -> Iterator[None]:
        """These files are gone, or empty (True)."""
        kept = {name: (self.root / name).read_bytes() for name, _ in files}
        for name, emptied in files:
            if emptied:
                (self.root / name).write_bytes(b"")
            elif (self.root / name).exists():
                (self.root / name).unlink()
        yield
        for name, body in kept.items():
            (self.root / name).write_bytes(body)


class Step:
    """``what`` happens before the beat: nothing, the clock is set, the machine sleeps, the agent restarts, a call hangs, a GPU falls off."""

    KINDS = ("beat",) * 6 + ("set", "sleep", "restart", "hang", "drop")

    def __init__(self, what: str, by_s: float, failing: Dict[str, int], files: Set[Tuple[str, bool]], beats: int) -> None:
        self.what, self.by_s, self.failing, self.files, self.beats = what, by_s, failing, files, beats

    def __repr__(self) -> str:
        return "Step(%r, %r, %r, %r, %r)" % (self.what, self.by_s, self.failing, self.files, self.beats)


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(Step.KINDS),
        st.sampled_from([-7200.0, -3.0, 0.4, 90.0, 700.0, 90000.0]),
        st.dictionaries(st.sampled_from(CALLS), st.sampled_from(CODES), max_size=4),
        st.sets(st.tuples(st.sampled_from(FILES), st.booleans()), max_size=4),
        st.integers(1, 7),
    ),
    min_size=1,
    max_size=8,
)


def live(machine: Machine, life: List[Step]) -> None:
    for step in life:
        if step.what == "set":
            machine.clock.wall += timedelta(seconds=step.by_s)
        elif step.what == "sleep":
            machine.clock.sleep(abs(step.by_s))
        elif step.what == "restart":
            machine.start()
        machine.driver.count = 1 if step.what == "drop" else 2
        machine.driver.failing = step.failing
        for _ in range(step.beats):
            machine.clock.move(machine.loop.next_beat_in(machine.clock.boot_s()))
            machine.works()
            machine.sampler.hung = machine.sampler.hung + 1 if step.what == "hang" else 0
            with machine.without(step.files):
                machine.loop.beat()
    machine.driver.failing, machine.driver.count, machine.sampler.hung = {}, 2, 0
    machine.clock.sleep(MOST_RETRY_S)  # by now even a driver that failed for long is tried again
    for _ in range(14):
        machine.clock.move(machine.loop.next_beat_in(machine.clock.boot_s()))
        machine.works()
        machine.loop.beat()


def some(*figures: Optional[float]) -> bool:
    return all(figure is None or figure > 0 for figure in figures)


def tells_the_truth(report: Report, waiting: bool) -> None:
    assert report.sampler.state != "no-gpu"
    assert report.expected_gpus != 0
    assert report.lost is None
    for gpu in report.gpus:
        assert some(gpu.peak_ratio, gpu.mean_ratio, gpu.samples, gpu.mem_used_bytes, gpu.mem_total_bytes, gpu.power_w, gpu.energy_j, gpu.processes), gpu
        assert gpu.peak_ratio in ((None, 0.03) if waiting else (None, 0.64, 0.77, 1.0)), gpu
        assert (gpu.peak_ratio is None) == (gpu.covered_s is None) == (gpu.mean_ratio is None), gpu
        assert gpu.covered_s is None or gpu.covered_s <= report.window_s + 2 * BEAT_S + 0.001, gpu
        assert gpu.holders is None or all(holder.pid == PID for holder in gpu.holders)
    for tree in report.loader or ():
        assert some(tree.cpu_cores, tree.read_bytes), tree
        # Where the clock was set, all that the driver's buffer holds counts: of a busy one's three samples one is an old zero.
        assert tree.wait_ratio is None or (tree.wait_ratio == 1.0 if waiting else tree.wait_ratio <= 1 / 3), tree
    seen = [gpu for gpu in report.gpus if gpu.processes is not None]
    assert report.loader is None or report.loader or not seen, "a process holds a GPU, and no tree is told of"
    host, totals = report.host, report.totals
    assert host is not None
    assert totals is not None
    assert some(host.cpu_ratio, host.mem_used_ratio, host.disk_bytes_per_s, host.net_bytes_per_s), host
    assert some(totals.cpu_s, totals.disk_bytes, totals.net_bytes, totals.gpu_energy_j), totals
    assert host.orchestrators in (None, ("kubelet",))
    assert report.jobs is None or not report.jobs or any(job.ended_age_s is None or not job.launcher_known or job.launcher for job in report.jobs), report.jobs
    assert report.people is None or report.people
    assert report.disks is None or [disk.device for disk in report.disks] == ["nvme1n1"]
    for disk in report.disks or ():
        assert disk.used_ratio in (None, 0.5), disk
        assert disk.written_age_s in (None, 0.0), disk


@pytest.mark.parametrize("waiting", [False, True], ids=["computes", "waits_for_data"])
@given(life=steps)
@settings(max_examples=12, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_machine_at_work_is_never_told_as_anything_less(waiting: bool, life: List[Step]) -> None:
    proc = psutil.PROCFS_PATH
    with tempfile.TemporaryDirectory() as root:
        psutil.PROCFS_PATH = root + "/proc"
        try:
            machine = Machine(Path(root), waiting)
            live(machine, life)
        finally:
            psutil.PROCFS_PATH = proc
    reports = [decode(encode(report)) for report in machine.out.reports]

    for report in reports:
        tells_the_truth(report, waiting)
    last = reports[-1]
    assert last.sampler.state == "ok", "it does not recover"
    assert (last.expected_gpus or 0) >= 2
