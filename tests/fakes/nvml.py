"""
Builds the fake NVML library (nvml.c) and writes the file that steers it.

    library = build(tmp_path)              # skips the test, naming gcc or the header, when it cannot be built
    state = State(tmp_path / "gpus")
    state.write("count 2", "gpu 0 util 97")
    subprocess.Popen([...], env={**os.environ, **environment(library, state)})

Inside the test's own process, `load_here(library)` makes pynvml find it by its name.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Optional

import pytest

SOURCE = Path(__file__).with_name("nvml.c")
STATE_VARIABLE = "FAKE_NVML_STATE"
LOG_VARIABLE = "FAKE_NVML_LOG"
STEADY_VARIABLE = "FAKE_NVML_STEADY"


class State:
    """The steering file. Each `write` replaces all of it at once, so the library never reads half of one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write()

    def write(self, *lines: str) -> None:
        new = self.path.with_name(self.path.name + ".new")
        new.write_text("".join(line + "\n" for line in lines))
        os.replace(new, self.path)


def uuid(index: int) -> str:
    """The UUID the library gives GPU number so and so."""
    return "GPU-5eed0000-0000-4000-8000-%012d" % index


def slice_uuid(index: int, number: int) -> str:
    """The UUID of instance ``number`` of a MIG GPU."""
    return "MIG-5eed0000-0000-4000-8000-%08d%04d" % (index, number)


def header() -> Optional[Path]:
    """The folder of NVIDIA's nvml.h, from the package nvidia-nvml-dev; None when that is not installed."""
    for base in map(Path, sys.path):
        for found in base.glob("nvidia/*/include/nvml.h"):
            return found.parent
    return None


def build(folder: Path, without: str = "") -> Path:
    """
    Compile the library into ``folder`` and return its path (libnvidia-ml.so.1).
    ``without``: hide one exported function, as an older driver lacks it.
    """
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the fake NVML library cannot be compiled")
    include = header()
    if include is None:
        pytest.skip("nvidia-nvml-dev is not installed: there is no nvml.h to compile the fake NVML library against")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(include), "-Wl,-soname,libnvidia-ml.so.1"]
    if without:
        script = folder / "exports.map"
        script.write_text("{ global: *; local: %s; };\n" % without)
        command.append("-Wl,--version-script=%s" % script)
    done = subprocess.run([*command, "-o", str(library), str(SOURCE), "-lpthread"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library


def environment(library: Path, state: State) -> Dict[str, str]:
    """What a process needs in its environment to see the fake GPUs."""
    return {"LD_LIBRARY_PATH": str(library.parent), STATE_VARIABLE: str(state.path)}


def load_here(library: Path) -> None:
    """Load it into this process: the loader then finds libnvidia-ml.so.1 by its name, wherever it lies."""
    ctypes.CDLL(str(library))
