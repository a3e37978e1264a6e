"""
The agent's estimate of data wait and a job's own measure, side by side, for six kinds of job with real PyTorch DataLoader workers.

By command, not in `all`: it needs torch for /usr/bin/python3 (apt-get install -y --no-install-recommends python3-torch) or
for the Python that TORCH_PYTHON names, root and /dev/fuse for the mount, and about three minutes of a quiet machine. The GPU is
the compiled fake driver; the job itself drives its utilisation, and it is sampled six times a second as a real one samples
itself. The agent's own files do all the rest, on a beat of one second.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from agent.build import OpenWindow
from agent.clock import BootClock
from agent.gpu import NvmlGpus
from agent.hook import HookedLoaders, Socket
from agent.loader import ProcLoaders
from agent.log import configured
from agent.readings import GpuSnapshot, Log, Reading
from agent.report import Loader
from tests.bench.rows import Row
from tests.fakes import fuse, nvml

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("TORCH_PYTHON", "/usr/bin/python3")
KINDS = ("fast", "loader-bound on CPU", "loader-bound on disk", "slow FUSE mount", "compute-bound", "checkpoint-heavy")
BEAT_S, SAMPLES_A_BEAT = 1.0, 6
WARM_S, MEASURED_S = 4, 20
OFF_BY = 0.10


def run() -> list[Row]:
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        return [Row("torch_loader: not measured", 0.0, "", bar=f"{PYTHON} has no torch: apt-get install -y --no-install-recommends python3-torch", ok=False)]
    rows = []
    with tempfile.TemporaryDirectory(prefix="torch-loader-") as name:
        folder = Path(name)
        library = nvml.build(folder / "driver")
        nvml.load_here(library)
        for kind in KINDS:
            rows += one(kind, folder, library)
    return rows


@contextlib.contextmanager
def data_for(kind: str, folder: Path) -> Iterator[str]:
    if kind == "slow FUSE mount":
        with fuse.mounted(folder / "mount", bytes_per_s=400_000) as mount:
            yield str(mount.file)
    elif kind == "loader-bound on disk":
        file = folder / "data"
        with file.open("wb") as out:
            for _ in range(96 * 8):
                out.write(os.urandom(1 << 20))
            os.fsync(out.fileno())
        yield str(file)
        file.unlink()
    else:
        yield str(folder / "checkpoint")


def one(kind: str, folder: Path, library: Path) -> list[Row]:
    state = nvml.State(folder / "gpus")
    os.environ[nvml.STATE_VARIABLE] = str(state.path)
    log = configured()
    door = Socket(folder / "hook.sock", log)
    with data_for(kind, folder) as file:
        door.open()
        environment = {**os.environ, "REAPER_AGENT_HOOK_SOCKET": str(folder / "hook.sock"), "PYTHONPATH": str(ROOT)}
        line = [PYTHON, "-m", "tests.bench.torch_job", kind, str(state.path), str(WARM_S + MEASURED_S + 3), file]
        with subprocess.Popen(line, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as job:
            loader, begin, end = watched(log, door)
            told, _ = job.communicate()
    door.close()
    truth = json.loads(told.splitlines()[-1])
    real = sum(max(0.0, min(ended, end) - max(began, begin)) for began, ended in truth["waits"]) / (end - begin)
    exact, estimate = loader.exact_wait_ratio, loader.wait_ratio
    print(f"{kind}: {evidence(loader)} (torch {truth['torch']})", file=sys.stderr)
    if exact is None or estimate is None:
        return [Row(f"torch_loader: {kind}", 0.0, "", bar=f"a figure is missing: exact {exact}, estimate {estimate}", ok=False)]
    return [
        Row(f"torch_loader: {kind}: told by the job, against its own clock", exact, "share", real, bar=f"within {OFF_BY}", ok=abs(exact - real) <= OFF_BY),
        Row(f"torch_loader: {kind}: the agent's estimate, against what the job told", estimate, "share", exact, bar="shown, not held"),
    ]


def watched(log: Log, door: Socket) -> tuple[Loader, float, float]:
    """The tree of one window of the agent, over the job as it runs; and when the window began and ended (CLOCK_MONOTONIC)."""
    clock = BootClock()
    gpus = NvmlGpus(clock, lambda pid: False, log)
    loaders = HookedLoaders(ProcLoaders(), door, log)
    until = time.monotonic() + 60.0
    while not any(gpu.pids for gpu in gpus.read().gpus) and time.monotonic() < until:
        time.sleep(0.1)
    window, begin = OpenWindow(clock.boot_s()), time.monotonic()
    for beat in range(WARM_S + MEASURED_S):
        if beat == WARM_S:
            window, begin = OpenWindow(clock.boot_s()), time.monotonic()
        snapshot = beat_of(gpus)
        window.add(Reading(snapshot, loaders.look(snapshot.gpus)), BEAT_S)
    gpus.close()
    end = time.monotonic()
    found = window.loaders(float(MEASURED_S)) or ()
    assert found, "no process held the GPU"
    return found[0], begin, end


def beat_of(gpus: NvmlGpus) -> GpuSnapshot:
    """The fake driver has no memory of what the job wrote a moment ago, so its samples are taken when they fall due."""
    read = []
    for _ in range(SAMPLES_A_BEAT):
        time.sleep(BEAT_S / SAMPLES_A_BEAT)
        read.append(gpus.read())
    samples = tuple(sample for snapshot in read for gpu in snapshot.gpus for sample in gpu.samples)
    return replace(read[-1], gpus=tuple(replace(gpu, samples=samples) for gpu in read[-1].gpus))


def evidence(loader: Loader) -> str:
    shown = {name: value for name, value in vars(loader).items() if name != "id" and value is not None}
    return ", ".join(f"{name} {value:.3g}" for name, value in shown.items())
