"""The command `reaper-agent`: run the agent, show what it last saw and sent, or find out what it cannot see."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Sequence

from agent.clock import BootClock, boot_id
from agent.config import ConfigError, Settings, load, read_token
from agent.state import read_status

DONE, FAILED, USAGE = 0, 1, 2

def main(argv: Optional[Sequence[str]] = None) -> int:
    """Entry point of `reaper-agent`. Returns the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words == ["run"]:  # as the service runs it: the parser would stay in memory for good
        return _with_settings(None, lambda settings: run(settings, False))
    from agent.arguments import parse

    arguments = parse(words)
    if arguments.command == "doctor":
        from agent import doctor

        return doctor.command(arguments.config, arguments.json)
    if arguments.command == "status":
        return _with_settings(arguments.config, lambda settings: status(settings, arguments.json))
    return _with_settings(arguments.config, lambda settings: run(settings, arguments.once))


def _with_settings(path: Optional[Path], command: Callable[[Settings], int]) -> int:
    try:
        settings = load(path)
    except ConfigError as error:
        return _refuse(error)
    return command(settings)


def _refuse(error: ConfigError) -> int:
    for problem in error.problems:
        print("reaper-agent: " + problem, file=sys.stderr)
    return USAGE


# --- run ---


def run(settings: Settings, once: bool) -> int:
    """Run the real agent. Imports what only a running agent needs: `status` and --help stay quick and need no driver."""
    import gc

    gc.disable()  # while all is loaded there is nothing to collect
    from agent import disks, host, identity, loop, nvml
    from agent.gpu import NvmlGpus
    from agent.loader import ProcLoaders
    from agent.log import LineLog
    from agent.sender import Post, Sender
    from agent.spool import Spool
    from agent.state import load_memory

    try:
        read_token(settings)
    except ConfigError as error:
        return _refuse(error)
    log, clock, stop = LineLog(), BootClock(), threading.Event()
    _warn_of_open_token(settings, log)
    try:
        boot = boot_id()
    except OSError as error:
        print("reaper-agent: no boot id (%s); the agent needs Linux with /proc" % error, file=sys.stderr)
        return FAILED

    def on_signal(number: int, frame: Optional[FrameType]) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)

    with contextlib.suppress(nvml.WrongModule):  # which the first reading reports
        nvml.load()
    gc.freeze()  # what is loaded now stays; the collector need not walk it again and again
    gc.set_threshold(10_000, 20, 20)  # a beat makes some hundred objects, hardly one of them in a circle
    gc.enable()

    loaders = ProcLoaders()
    hooked, hang_up = (loaders, lambda: None) if once else _hooked(settings, loaders, log)
    spool = Spool(settings.spool_dir, boot, settings.spool_reports, settings.spool_mib << 20, log)
    sender = Sender(Post(settings, clock), spool, clock, log, settings.window_s)
    if not once:
        sender.start()
    loop.run_loop(
        settings,
        NvmlGpus(clock, host.nobodys_work(settings.nobodys_work), log),
        host.ProcHost(),
        stop,
        loaders=hooked,
        work=_work(settings, clock, loaders.born),
        disks=disks.LocalDisks(),
        who=_who(settings, identity, stop, clock, log, load_memory(settings.state_dir, log).identity(boot)),
        outbox=_Once(sender) if once else _exported(settings, sender, clock, log),
        boot_id=boot,
        clock=clock,
        log=log,
        notify=loop.notify_systemd,
        windows=1 if once else None,
    )
    hang_up()
    if not once:
        return DONE
    delivery = sender.delivery()
    print("report taken by %s" % settings.reaper if delivery.last_sent_seq else "no report taken: %s" % (delivery.problem or "identity not known"))
    return DONE if delivery.last_sent_seq is not None else FAILED


def _work(settings: Settings, clock: BootClock, born: Callable[[int], Optional[int]]) -> Any:
    from agent import host, jobs, launchers, people, procs

    reads, names = procs.Procs(), people.Names()
    short = settings.window_s < 30.0  # which only a reaper on this machine takes
    look_for = launchers.Launchers(reads, host.nobodys_work(settings.nobodys_work))
    return people.ProcWork(
        clock,
        jobs.Jobs(reads, look_for, max(1.0, settings.window_s) if short else jobs.SETTLE_S, born),
        people.Holders(reads, names, born),
        names,
        people_every_s=settings.window_s if short else people.PEOPLE_EVERY_S,
    )


def _hooked(settings: Settings, loaders: Any, log: Any) -> Any:
    """The loaders, with what jobs tell of their own waiting where the socket can be had; and what ends that."""
    if settings.hook_socket is None:
        return loaders, lambda: None
    from agent import hook

    door = hook.Socket(settings.hook_socket, log)
    return (hook.HookedLoaders(loaders, door, log), door.close) if door.open() else (loaders, lambda: None)


def _exported(settings: Settings, sender: Any, clock: BootClock, log: Any) -> Any:
    """The outbox, with the page for Prometheus before it where the settings ask for one."""
    if settings.metrics_listen is None:
        return sender
    from agent.exporter import Exporter

    exporter = Exporter(sender, clock, log)
    exporter.start(settings.metrics_listen)
    return exporter


class _Once:
    """An outbox that sends within the loop's own thread, since --once has nothing else to do."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self.delivery, self.forget, self.close = sender.delivery, sender.forget, sender.close

    def hand(self, report: Any) -> None:
        self._sender.hand(report)
        self._sender.pump()


def _who(settings: Settings, identity: Any, stop: threading.Event, clock: BootClock, log: Any, remembered: Any) -> Any:
    if settings.resource is not None:
        named = identity.Identity(settings.resource)
        return lambda: named
    who = identity.Who(lambda: identity.ask_metadata(settings.metadata), stop, clock, log, remembered)
    who.start()
    return who.current


def _warn_of_open_token(settings: Settings, log: Any) -> None:
    if settings.token_file is None:
        return
    mode = settings.token_file.stat().st_mode
    if mode & 0o077:
        log.warning("token file is open to others", file=str(settings.token_file), remedy="chmod 600 %s" % settings.token_file)


# --- status ---


def status(settings: Settings, as_json: bool) -> int:
    """Print the status file. 0: the agent runs; 1: it does not, or not on this boot."""
    try:
        seen = read_status(settings.state_dir)
    except (OSError, ValueError) as error:
        print("reaper-agent: nothing to show in %s (%s); is the agent running? systemctl status reaper-agent" % (settings.state_dir, error), file=sys.stderr)
        return FAILED
    seen["running"] = alive(seen, BootClock().boot_s(), _boot_or_none())
    if as_json:
        print(json.dumps(seen, separators=(",", ":")))
    else:
        print("\n".join(lines(seen)))
    return DONE if seen["running"] else FAILED


def _boot_or_none() -> Optional[str]:
    try:
        return boot_id()
    except OSError:
        return None


def alive(seen: Dict[str, Any], now_s: float, boot: Optional[str]) -> bool:
    """Whether the file was written in this boot and within the last three windows."""
    written, window = seen.get("written_boot_s"), seen.get("window_s")
    if not isinstance(written, (int, float)) or not isinstance(window, (int, float)):
        return False
    return not seen.get("stopped") and seen.get("boot_id") == boot and 0 <= now_s - written + 1.0 <= 3 * window + 1.0


def lines(seen: Dict[str, Any]) -> List[str]:
    """The status for people."""
    report, answer = seen.get("report") or {}, seen.get("answer") or {}
    sent, spool = seen.get("sent") or {}, seen.get("spool") or {}
    sampler = report.get("sampler") or {}
    out = [
        "agent      %s%s" % (seen.get("agent", "?"), "" if seen["running"] else "   NOT RUNNING (last seen %s)" % seen.get("written_at", "?")),
        "machine    %s" % (seen.get("resource") or "not known yet"),
        "reaper     %s" % seen.get("reaper", "?"),
        "gpus       %s of %s, sampler %s%s"
        % (len(report.get("gpus") or []), _or_dash(report.get("expected_gpus")), sampler.get("state", "?"), _because(sampler)),
    ]
    out += ["  " + _gpu_line(gpu) for gpu in report.get("gpus") or []]
    out += [
        "sent       %s%s" % (sent.get("at") or "never", "; trouble: %s" % sent["problem"] if sent.get("problem") else ""),
        "spool      %s reports, %s bytes, %s dropped" % (spool.get("reports", "?"), spool.get("bytes", "?"), spool.get("dropped", "?")),
    ]
    upcoming = answer.get("upcoming")
    if upcoming:
        out.append("upcoming   %s at %s: %s" % (upcoming.get("action"), upcoming.get("due_at") or "?", upcoming.get("because")))
    elif answer:
        out.append("upcoming   nothing")
    if answer.get("snoozed_until"):
        out.append("snoozed    until %s" % answer["snoozed_until"])
    return out


def _gpu_line(gpu: Dict[str, Any]) -> str:
    peak, used, total = gpu.get("peak_ratio"), gpu.get("mem_used_bytes"), gpu.get("mem_total_bytes")
    parts = [
        gpu.get("uuid", "?"),
        gpu.get("model", ""),
        "peak %s" % ("-" if peak is None else "%.0f%%" % (100 * peak)),
        "memory %s of %s MiB" % tuple(_or_dash(None if v is None else v >> 20) for v in (used, total)),
        "processes %s" % _or_dash(gpu.get("processes")),
        "(%s)" % gpu["trouble"] if gpu.get("trouble") else "",
    ]
    return "  ".join(part for part in parts if part)


def _or_dash(value: Any) -> str:
    return "-" if value is None else str(value)


def _because(sampler: Dict[str, Any]) -> str:
    return ": %s" % sampler["because"] if sampler.get("because") else ""


if __name__ == "__main__":
    sys.exit(main())
