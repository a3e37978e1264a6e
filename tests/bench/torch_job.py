"""
One training job of a kind, with a real PyTorch DataLoader, for torch_loader.py. It drives the fake GPU itself: high while it
"computes" (sleeps, as a program does that waits for its GPU), 0 else.

    python -m tests.bench.torch_job KIND STATE SECONDS [FILE]

Prints one JSON object at the end: by its own clock (CLOCK_MONOTONIC) when each next() began and ended.
"""

import json
import os
import sys
import time
from collections.abc import Callable

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.utils.data import DataLoader, Dataset  # type: ignore[import-not-found,unused-ignore]

from agent.loader_hook import timed_loader

KIND, STATE, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
FILE = sys.argv[4] if len(sys.argv) > 4 else ""
MIB = 1 << 20


def gpu(percent: int) -> None:
    """The driver's file is replaced whole, as the fake wants it."""
    new = STATE + ".job"
    with open(new, "w") as file:
        file.write(f"count 1\ngpu 0 util {percent}\ngpu 0 mem 8000 81920\ngpu 0 proc {os.getpid()} 7900\n")
    os.replace(new, STATE)


def in_memory(n: int) -> None:
    return


def on_cpu(n: int) -> None:
    until = time.process_time() + 0.25
    while time.process_time() < until:
        torch.rand(64, 64) @ torch.rand(64, 64)


def on_disk(n: int) -> None:
    """Cold: what the page cache holds of it is dropped first."""
    file = os.open(FILE, os.O_RDONLY)
    size, at = 96 * MIB, n * 96 * MIB % os.fstat(file).st_size
    os.posix_fadvise(file, at, size, os.POSIX_FADV_DONTNEED)
    while size > 0:
        size, at = size - len(os.pread(file, MIB, at)), at + MIB
    os.close(file)


def on_mount(n: int) -> None:
    file = os.open(FILE, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    for part in range(2):
        os.pread(file, 65536, (n * 2 + part) * 65536)
    os.close(file)


LOAD: dict[str, tuple[Callable[[int], None], float]] = {  # what a sample costs to load, and seconds of computing for a batch of two
    "fast": (in_memory, 0.25),
    "loader-bound on CPU": (on_cpu, 0.1),
    "loader-bound on disk": (on_disk, 0.05),
    "slow FUSE mount": (on_mount, 0.1),
    "compute-bound": (on_cpu, 1.5),
    "checkpoint-heavy": (in_memory, 0.25),
}


class Samples(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, n: int) -> torch.Tensor:
        LOAD[KIND][0](n)
        return torch.zeros(16)


def checkpoint() -> None:
    with open(FILE, "wb") as file:
        torch.save({"weights": torch.rand(48 * MIB)}, file)
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    torch.set_num_threads(1)
    gpu(0)
    loader = timed_loader(DataLoader(Samples(), batch_size=2, num_workers=2, shuffle=False))
    assert isinstance(loader, DataLoader)
    began = left = time.monotonic()
    waits = []
    for _ in loader:
        waits.append((left, time.monotonic()))
        gpu(95)
        time.sleep(LOAD[KIND][1])
        gpu(0)
        if KIND == "checkpoint-heavy" and len(waits) % 8 == 0:
            checkpoint()
        left = time.monotonic()
        if left - began > SECONDS:
            break
    print(json.dumps({"waits": waits, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
