"""
The doctor's look at the driver: the library, the version, and what each GPU answers to each call.

With a deadline: a driver that does not return is a finding, not a doctor that hangs.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple

from agent import nvml, pci
from agent.calls import Calls, Failed, as_text

OK, WARN, FAIL = "ok", "warn", "fail"
DRIVER_WITHIN_S = 20.0


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``lost`` and ``remedy`` are None when it is ok."""

    name: str
    state: str
    found: str
    lost: Optional[str] = None
    remedy: Optional[str] = None


# What each figure is read by; utilisation has two ways, of which one will do.
_FIGURES: Tuple[Tuple[str, str], ...] = (
    ("memory", "nvmlDeviceGetMemoryInfo"),
    ("processes", "nvmlDeviceGetComputeRunningProcesses"),
    ("power", "nvmlDeviceGetPowerUsage"),
    ("energy", "nvmlDeviceGetTotalEnergyConsumption"),
)


def gpus(loading: Callable[[], Any] = nvml.load, within_s: float = DRIVER_WITHIN_S) -> Tuple[List[Check], List[int]]:
    """The library, the driver and what each GPU answers, with a deadline; and the processes on the GPUs."""
    calls = Calls(loading)
    checks: List[Check] = []
    pids: List[int] = []

    def ask() -> None:
        try:
            _driver(calls, checks, pids)
        except Failed as failed:
            checks.append(_no_driver(failed.error))
        except nvml.WrongModule as error:
            checks.append(Check("driver", FAIL, "not asked", "every GPU figure", str(error)))

    thread = threading.Thread(target=ask, name="doctor", daemon=True)
    thread.start()
    thread.join(within_s)
    if thread.is_alive():
        found = "%s has not returned for %.0f s" % (calls.doing or "a call", within_s)
        return [*checks, Check("driver", FAIL, found, "every GPU figure", "see dmesg (Xid, GSP); a reboot is likely needed")], pids
    return checks, pids


def _no_driver(error: BaseException) -> Check:
    code = nvml.code_of(error)
    bus = pci.count()
    if code == nvml.LIBRARY_NOT_FOUND:
        if bus is not None and bus.nvidia == 0:
            return Check("driver", OK, "no NVIDIA library and no NVIDIA GPU on the bus")
        return Check("driver", FAIL, "libnvidia-ml.so.1 is not installed", "every GPU figure", "install the driver's user-space libraries")
    state, because = nvml.state(error)
    return Check("driver", FAIL, state, "every GPU figure: the machine is unknown, and never idle", because)


def _driver(calls: Calls, checks: List[Check], pids: List[int]) -> None:
    calls.load()
    calls("nvmlInit")
    try:
        odd = nvml.foreign(calls.api)
        count = calls("nvmlDeviceGetCount", to=int)
        found = "%s, %d GPUs, module %s" % (calls.text("nvmlSystemGetDriverVersion") or "?", count, getattr(calls.api, "__file__", "?"))
        if odd is None:
            checks.append(Check("driver", OK, found))
        else:
            checks.append(Check("driver", WARN, found, odd, "pip install --force-reinstall nvidia-ml-py"))
        for index in range(count):
            checks.append(_gpu(calls, index, pids))
    finally:
        calls("nvmlShutdown")


def _gpu(calls: Calls, index: int, pids: List[int]) -> Check:
    name = "gpu %d" % index
    try:
        handle: Any = calls("nvmlDeviceGetHandleByIndex", index, on=index)
        uuid = calls("nvmlDeviceGetUUID", handle, on=index, to=as_text)
    except Failed as failed:
        return Check(name, FAIL, nvml.trouble(failed.error), "all its figures", "see dmesg (Xid); reset the GPU or reboot")
    answers = {what: _answer(calls, function, handle, index) for what, function in _FIGURES}
    util, blind = _utilisation(calls, handle, index)
    answers = {"utilisation": util, **answers}
    pids += _pids(calls, handle, index)
    found = "%s %s: %s" % (uuid, calls.text("nvmlDeviceGetName", handle, on=index) or "?", ", ".join("%s %s" % pair for pair in answers.items()))
    missing = [what for what, answer in answers.items() if answer != OK]
    if not missing:
        return Check(name, OK, found)
    lost = ", ".join(missing)
    if util == OK:
        return Check(name, WARN, found, lost, "nothing, if this product has no such counter; else look at the driver's version and rights")
    if blind:
        return Check(name, WARN, found, "utilisation, which this GPU does not measure: it is unknown, and idle only when plainly empty", "nothing; see MIG in the README")
    return Check(name, FAIL, found, lost + ": this GPU is unknown, and never idle", "look at dmesg, the driver's version and the agent's rights")


def _utilisation(calls: Calls, handle: Any, index: int) -> Tuple[str, bool]:
    """The answer, and whether this GPU is of a kind that measures none (MIG is on)."""
    since = int((time.time() - 5.0) * 1e6)
    by_buffer = _answer(calls, "nvmlDeviceGetSamples", handle, index, getattr(calls.api, "NVML_GPU_UTILIZATION_SAMPLES", 1), since)
    answer = OK if by_buffer == OK else _answer(calls, "nvmlDeviceGetUtilizationRates", handle, index)
    try:
        mig = bool(calls("nvmlDeviceGetMigMode", handle, on=index, to=lambda modes: modes[0] == 1))
    except Failed:
        mig = False
    if mig:
        return "not measured (MIG is on)", True
    return (answer, False) if answer != OK or by_buffer == OK else ("ok", False)


def _answer(calls: Calls, function: str, handle: Any, index: int, *more: Any) -> str:
    try:
        calls(function, handle, *more, on=index)
    except Failed as failed:
        return "no (%s)" % nvml.trouble(failed.error)
    return OK


def _pids(calls: Calls, handle: Any, index: int) -> List[int]:
    try:
        found: List[int] = calls("nvmlDeviceGetComputeRunningProcesses", handle, on=index, to=lambda listed: [int(entry.pid) for entry in listed])
    except Failed:
        return []
    return found
