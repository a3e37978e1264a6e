"""
What the agent cannot see on this machine, what is lost by that, and what to do.

`reaper-agent doctor` looks at rights, driver, metadata service, clock, the way to the
reaper and the spool, as the user who runs it: run it as the agent's user. It sends no
report. Whether the token is taken is asked with an empty request that is no report:
the reaper looks at the token first, and then refuses the request for its type.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence

from agent import doctor_work, pci, procs
from agent.clock import BOOT_ID_FILE, boot_id
from agent.config import ConfigError, Settings, load, read_token
from agent.doctor_driver import FAIL, OK, WARN, Check, gpus
from agent.http import HttpError, Response
from agent.identity import Identity, IdentityError, ask_metadata
from agent.sender import PATH, connection

MOST_OFFSET_S = 30.0
_DO_DEVICES = "let the agent's user open /dev/nvidia* (group, or DeviceAllow= and no PrivateDevices= in its unit)"
_DO_PROC = "run the agent where the host's processes are visible: no hidepid, ProtectProc=default, the host's pid namespace"


def command(path: Optional[Path], as_json: bool) -> int:
    """All checks on this machine, shown. 0: none failed; 1: one did."""
    checks = everything(path)
    well = all(check.state != FAIL for check in checks)
    if as_json:
        print(json.dumps({"ok": well, "checks": [asdict(check) for check in checks]}, separators=(",", ":")))
    else:
        print("\n".join(line for check in checks for line in lines(check)))
    return 0 if well else 1


def lines(check: Check) -> List[str]:
    shown = ["%-5s %-14s %s" % (check.state, check.name, check.found)]
    if check.lost is not None:
        shown.append("%-5s %-14s lost: %s" % ("", "", check.lost))
    if check.remedy is not None:
        shown.append("%-5s %-14s do:   %s" % ("", "", check.remedy))
    return shown


def everything(path: Optional[Path]) -> List[Check]:
    checks = [who_asks()]
    settings: Optional[Settings] = None
    try:
        settings = load(path)
    except ConfigError as error:
        checks += [Check("settings", FAIL, problem, "the agent does not start", "correct it; the agent's README lists the keys") for problem in error.problems]
    checks += devices()
    driver, pids = gpus()
    checks += driver
    checks += processes(pids)
    checks += doctor_work.people(pids[0] if pids else 1)
    if settings is not None:
        checks.append(doctor_work.hook(settings.hook_socket))
        checks.append(metadata(settings))
        checks += reaper(settings)
    checks.append(boot_clock())
    if settings is not None:
        checks += files(settings)
    return checks


def who_asks() -> Check:
    uid = os.geteuid()
    return Check("user", OK, "checked with the rights of uid %d; the agent's own may differ" % uid)


# --- rights ---


def devices(dev: Path = Path("/dev"), bus: Callable[[], Optional[pci.PciGpus]] = pci.count) -> List[Check]:
    """May the driver's device files be opened?"""
    found = sorted(p for p in dev.glob("nvidia*") if p.name == "nvidiactl" or p.name[len("nvidia") :].isdigit())
    seen = bus()
    lost = "every GPU figure: the machine is unknown, and never idle"
    if not found:
        if seen is not None and seen.nvidia == 0:
            return [Check("devices", OK, "no NVIDIA GPU on the PCI bus")]
        return [Check("devices", FAIL, "no /dev/nvidia*, though the bus may have a GPU", lost, "load the driver: modprobe nvidia; see dmesg")]
    closed = [str(path) for path in found if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        return [Check("devices", FAIL, "may not open %s" % ", ".join(closed[:4]), lost, _DO_DEVICES)]
    return [Check("devices", OK, "%d device files may be opened" % len(found))]


def processes(pids: Sequence[int], proc: Path = procs.PROC) -> List[Check]:
    """Are processes visible, and may their data path be read?"""
    reads = procs.Procs(proc)
    if reads.pids() is None:
        hidden = "processes on GPUs have no name, owner or job; orchestrators cannot be seen, which holds the machine"
        return [Check("processes", FAIL, "other users' processes are hidden in %s" % proc, hidden, _DO_PROC)]
    checks = [Check("processes", OK, "visible")]
    if not reads.on_the_machine():
        checks = [
            Check("processes", WARN, "we are in a container's pid namespace", "the driver names processes that cannot be found here", _DO_PROC)
        ]
    tried = [pid for pid in pids if reads.stat(pid) is not None] or [1]
    what = "of %d GPU processes" % len(tried) if tried != [1] else "of process 1 (none is on a GPU to try)"
    closed = [pid for pid in tried if reads.read_bytes(pid) is None]
    if not closed:
        return [*checks, Check("data path", OK, "%s/PID/io %s may be read" % (proc, what))]
    lost = "whether such a process waits for its data; a starved job is then told by its CPU and sleep alone"
    remedy = "run as root, or give the agent's unit AmbientCapabilities=CAP_SYS_PTRACE"
    return [*checks, Check("data path", WARN, "%s/PID/io %s may not be read" % (proc, what), lost, remedy)]


# --- identity, clock, reaper, files ---


def metadata(settings: Settings, ask: Callable[[str], Identity] = ask_metadata) -> Check:
    if settings.resource is not None:
        return Check("identity", OK, "%s, from the settings" % settings.resource)
    try:
        return Check("identity", OK, "%s, from %s" % (ask(settings.metadata).resource, settings.metadata))
    except IdentityError as error:
        remedy = "let the agent reach it (hop limit, firewall), or set resource in the settings"
        return Check("identity", FAIL, str(error), "every report: nobody knows whose it would be", remedy)


def boot_clock(which: Optional[int] = getattr(time, "CLOCK_BOOTTIME", None), file: Path = BOOT_ID_FILE) -> Check:
    try:
        boot_id(file)
    except OSError as error:
        return Check("boot", FAIL, "no boot id (%s)" % error, "every report: none could be placed in time", "the agent needs Linux with /proc")
    if which is None:
        return Check("boot", WARN, "no boot-time clock", "time that the machine sleeps is not counted", "use Linux and a Python that knows it")
    return Check("boot", OK, "boot id and a clock that counts sleep")


def reaper(settings: Settings, now_s: Callable[[], float] = time.time) -> List[Check]:
    """Reachable, of a certificate that is trusted, with a clock like ours, and taking our token?"""
    line = connection(settings, time.monotonic)
    base = "/" + settings.reaper.split("://", 1)[1].partition("/")[2]
    try:
        alive = line.request("GET", base.rstrip("/") + "/healthz", {})
        checks = [_alive(settings, alive), _offset(alive, now_s())]
        checks.append(_token(settings, lambda headers: line.request("POST", base.rstrip("/") + PATH, headers)))
    except (OSError, HttpError) as error:
        found = "%s: %s: %s" % (settings.reaper, type(error).__name__, error)
        lost = "reports wait in the spool, a day of them at most; meanwhile this machine is silent, which is not idle"
        tls = "certificate" in str(error).lower()
        remedy = "trust its authority: ca_file in the settings" if tls else "check the address, name lookup, firewall and that the reaper runs"
        return [Check("reaper", FAIL, found, lost, remedy)]
    finally:
        line.close()
    return checks


def _alive(settings: Settings, answer: Response) -> Check:
    if answer.status == 200:
        return Check("reaper", OK, "%s is alive" % settings.reaper)
    return Check("reaper", FAIL, "%s/healthz answered %d" % (settings.reaper, answer.status), "reports", "is this the reaper's address, and no proxy's?")


def _offset(answer: Response, now_s: float) -> Check:
    from email.utils import parsedate_to_datetime  # heavy, and only a doctor needs it

    try:
        theirs = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError, IndexError):
        return Check("clock", WARN, "the reaper says no time", "nothing is compared", "look at the clock yourself: timedatectl")
    off_s = now_s - theirs
    if abs(off_s) > MOST_OFFSET_S:
        lost = "times that people are shown are wrong by that; lengths are not, they come from the boot clock"
        return Check("clock", WARN, "%.0f s %s the reaper's" % (abs(off_s), "ahead of" if off_s > 0 else "behind"), lost, "timedatectl set-ntp true")
    return Check("clock", OK, "within %.0f s of the reaper's" % max(1.0, abs(off_s)))


def _token(settings: Settings, post: Callable[[Dict[str, str]], Response]) -> Check:
    lost = "reports: the reaper refuses them"
    try:
        token = read_token(settings)
    except ConfigError as error:
        return Check("token", FAIL, "; ".join(error.problems), lost, "reaper token issue RESOURCE")
    answer = post({"Authorization": "Bearer " + token, "Content-Type": "text/plain"})
    if answer.status in (401, 403):
        return Check("token", FAIL, "not accepted (%d)" % answer.status, lost, "issue a new one: reaper token issue RESOURCE")
    if answer.status == 415:
        return Check("token", OK, "accepted (asked with an empty request that is no report)")
    return Check("token", WARN, "not known: the reaper answered %d" % answer.status, "whether it is accepted", "try again in a minute; see the reaper's log")


def files(settings: Settings) -> List[Check]:
    """May the state and the spool be written, and how full is the spool?"""
    checks = []
    reports = sorted(settings.spool_dir.glob("*.json")) if os.access(settings.spool_dir, os.R_OK) else []
    size = sum(path.stat().st_size for path in reports if path.exists())
    for name, folder, lost in (
        ("state", settings.state_dir, "the number of GPUs and the last work over a restart; `status` shows nothing"),
        ("spool", settings.spool_dir, "reports while the reaper is away"),
    ):
        problem = _not_writable(folder)
        if problem is not None:
            remedy = "give the folder to the agent's user (StateDirectory=reaper-agent), or make room"
            checks.append(Check(name, FAIL, "%s: %s" % (folder, problem), lost, remedy))
        else:
            held = ", %d reports, %d of %d MiB" % (len(reports), size >> 20, settings.spool_mib) if name == "spool" else ""
            checks.append(Check(name, OK, "%s may be written%s" % (folder, held)))
    if len(reports) >= settings.spool_reports // 2:
        checks.append(Check("backlog", WARN, "%d reports wait" % len(reports), "the oldest, when it is full", "see whether the reaper can be reached"))
    return checks


def _not_writable(folder: Path) -> Optional[str]:
    """Tried with a file of ours; a folder that is not there yet is tried where it would be made."""
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
            return None
    except OSError as error:
        return error.strerror or str(error)


if __name__ == "__main__":
    sys.exit(command(None, "--json" in sys.argv))
