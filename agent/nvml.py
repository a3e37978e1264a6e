"""
The `pynvml` module: is it the right one, and what do its errors mean.

PyPI has several packages that install a module of this name. Ours is nvidia-ml-py;
the last one installed wins silently, so a module that lacks a name we need is refused
at start with the remedy, rather than found out one figure at a time.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
from typing import Any, Callable, Iterator, Optional, Tuple

from agent import readings

NEEDED = (
    "nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
    "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetSamples", "nvmlDeviceGetMemoryInfo", "nvmlMemory_v2",
    "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMigMode", "nvmlSystemGetDriverVersion",
    "NVML_GPU_UTILIZATION_SAMPLES", "NVMLError",
)  # fmt: skip

# Return codes: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
UNINITIALIZED, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED = 1, 3, 4, 6, 9
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, OPERATING_SYSTEM, MISMATCH = 12, 13, 15, 16, 17, 18
NO_DEVICE = 28

# Codes that say what a device or driver can never do. Every other code may pass.
CANNOT = (NOT_SUPPORTED, FUNCTION_NOT_FOUND)

_TROUBLE = {
    NOT_SUPPORTED: "unsupported",
    NO_PERMISSION: "no permission",
    FUNCTION_NOT_FOUND: "driver too old",
    GPU_IS_LOST: "lost",
    RESET_REQUIRED: "reset required",
    OPERATING_SYSTEM: "blocked by the operating system",
}
_STATES = {
    DRIVER_NOT_LOADED: (readings.NO_DRIVER, "the NVIDIA kernel driver is not loaded; check dmesg and modprobe nvidia"),
    MISMATCH: (readings.MISMATCH, "NVIDIA library and kernel driver differ since an upgrade; reboot (running jobs are fine)"),
    NO_PERMISSION: (readings.NO_PERMISSION, "the agent's user may not open the NVIDIA driver; allow it /dev/nvidia*"),
    OPERATING_SYSTEM: (readings.NO_PERMISSION, "the operating system blocks the NVIDIA devices; allow /dev/nvidia* (DeviceAllow=)"),
}


class WrongModule(Exception):
    """The installed `pynvml` is not usable. The message has the remedy."""


def load(find: Callable[[str], Any] = importlib.import_module) -> Any:
    """The pynvml module. Raises WrongModule when it is missing or is another package's."""
    remedy = "run: pip uninstall -y pynvml nvidia-ml-py3; pip install --force-reinstall nvidia-ml-py"
    try:
        with _no_library_search():
            module = find("pynvml")
    except ImportError as error:
        raise WrongModule("python module pynvml cannot be imported (%s); %s" % (error, remedy)) from error
    missing = [name for name in NEEDED if not hasattr(module, name)]
    if missing:
        where = getattr(module, "__file__", "?")
        raise WrongModule("python module pynvml at %s lacks %s; %s" % (where, ", ".join(missing[:3]), remedy))
    return module


@contextlib.contextmanager
def _no_library_search() -> Iterator[None]:
    """
    The binding imports `ctypes.util` for what only Windows needs of it, and that brings
    subprocess, shutil and three compressors: 10 ms and 2 MiB. A stand-in lies there
    meanwhile, which loads the real one when it is asked after all.
    """
    name = "ctypes.util"
    if name in sys.modules:
        yield
        return

    def find_library(library: str) -> Optional[str]:
        from ctypes import util

        return util.find_library(library)

    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].find_library = find_library  # type: ignore[attr-defined]
    try:
        yield
    finally:
        sys.modules.pop(name, None)


def foreign(module: Any) -> Optional[str]:
    """
    A sentence when the module does not seem to come from nvidia-ml-py (a
    distribution's package, a vendored copy, another package of that file name), else
    None. Told by the folders beside it: asking the installer's records costs 6 MiB.
    """
    where = str(getattr(module, "__file__", "?"))
    try:
        beside = [name.lower().replace("-", "_") for name in os.listdir(os.path.dirname(where))]
    except OSError:
        beside = []
    others = [name for name in beside if name.startswith(("nvidia_ml_py3_", "pynvml_")) and name.endswith((".dist_info", ".egg_info"))]
    if others:
        return "pynvml at %s may be the file of another package (%s)" % (where, others[0])
    if not any(name.startswith("nvidia_ml_py_") for name in beside):
        return "pynvml at %s does not come from the package nvidia-ml-py" % where
    return None


def code_of(error: BaseException) -> Optional[int]:
    """NVML's return code of an error; None when it is not NVML's (a broken structure, say)."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


def trouble(error: BaseException) -> str:
    """One GPU's failure in a few words."""
    code = code_of(error)
    if code is None:
        return "unreadable (%s)" % type(error).__name__
    return _TROUBLE.get(code, "error %d" % code)


def state(error: BaseException) -> Tuple[str, str]:
    """The sampler's word and a sentence for a failure of the whole driver."""
    code = code_of(error)
    if code in _STATES:
        return _STATES[code]
    if code is None:
        return readings.FAILED, "NVML: %s: %s" % (type(error).__name__, error)
    return readings.FAILED, "NVML answers with error %d; see nvidia-smi on this machine" % code
