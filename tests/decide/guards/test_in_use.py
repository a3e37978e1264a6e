"""Work without the GPUs is work: downloads, compilation, checkpoints. So is what could not be looked at."""

from dataclasses import replace

from reaper.decide.guards.in_use import in_use
from reaper.model.policy import MIB
from tests.builders import HELD_FOR, IDLE_FOR, facts, gpu, held_facts, loader, observation, quiet
from tests.decide.tables import check, rows

NAN, INF = float("nan"), float("inf")


def seen(**changes):
    return facts(newest=observation(**changes))


def over(host_covered, of=facts):
    its = of()
    return replace(its, quiet=replace(its.quiet, host_covered=host_covered))


@rows([
    ("all quiet", facts(), None),
    ("background below every limit", seen(cpu_ratio=0.19, disk_bytes_per_s=4.9 * MIB, net_bytes_per_s=4.9 * MIB), None),
    ("compiling: CPU at the limit", seen(cpu_ratio=0.20), "CPU 20%"),
    ("writing a checkpoint: disk at the limit", seen(disk_bytes_per_s=5.0 * MIB), "disk 5.0 MiB/s"),
    ("downloading a dataset: network at the limit", seen(net_bytes_per_s=40.0 * MIB), "network 40.0 MiB/s"),
    ("a GPU moved", seen(gpus=(gpu(peak=0.06),)), "GPU peak 6%"),
    ("one GPU of eight moved", seen(gpus=tuple(gpu(f"GPU-{n}", peak=0.9 if n == 7 else 0.0) for n in range(8))), "GPU peak 90%"),
    ("the process that owns a GPU computes", seen(loaders=(loader(cpu_cores=1.0),)), "1.00 cores"),
    ("waiting for data is the other guard's", seen(loaders=(loader(wait=0.9),)), None),
    ("an unverified voice says busy", seen(verified=False, cpu_ratio=0.9), "CPU 90%"),
    ("CPU missing", seen(cpu_ratio=None), "CPU not readable"),
    ("disk missing", seen(disk_bytes_per_s=None), "disk not readable"),
    ("network missing", seen(net_bytes_per_s=None), "network not readable"),
    ("all three missing", seen(cpu_ratio=None, disk_bytes_per_s=None, net_bytes_per_s=None), "CPU and disk and network"),
    ("CPU not a number", seen(cpu_ratio=NAN), "CPU not readable"),
    ("disk infinite", seen(disk_bytes_per_s=INF), "disk inf MiB/s"),
    ("network below zero", seen(net_bytes_per_s=-1.0), "network not readable"),
    ("the CPU of a GPU's owner missing", seen(loaders=(loader(cpu_cores=None),)), "the CPU of a GPU's owner not readable"),
    ("the host unreadable for much of the term", over({IDLE_FOR: (0.89, "disk")}), "disk readable for 89%"),
    ("the host readable just enough", over({IDLE_FOR: (0.90, "disk")}), None),
    ("nothing known about the host's coverage", over({}), "nothing readable"),
    ("coverage known for the other term only", over({HELD_FOR: (1.0, "cpu")}), "nothing readable"),
    ("coverage not a number", over({IDLE_FOR: (NAN, "cpu")}), "cpu readable"),
    ("held machines are covered over their longer term", over({IDLE_FOR: (1.0, "cpu"), HELD_FOR: (0.5, "net")}, held_facts), "net readable for 50%"),
    ("no term yet, so no coverage is asked for", facts(quiet=quiet(IDLE_FOR / 2, host_covered={})), None),
    ("no report is another guard's matter", facts(newest=None), None),
])  # fmt: skip
def test_work_without_the_gpus_holds(given, expected):
    check(in_use, given, expected)
