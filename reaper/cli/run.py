"""
`reaper run`: the daemon. It takes reports, lists, decides, warns and, where the configuration allows it, acts.

Cycles run in the main thread, the report door in its own. A signal ends it after the cycle that runs, or at once when
that takes too long: whatever is left open then is read and closed by the next start.
"""

import argparse
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reaper import config, log
from reaper.cli import exits, fleet, screen
from reaper.cli.opened import parts_of
from reaper.cli.plan import exit_code
from reaper.config.live import LiveConfiguration
from reaper.errors import Refused, UsageError
from reaper.model.policy import Configuration, Mode
from reaper.service.cycle import CycleResult
from reaper.service.daemon import Daemon

if TYPE_CHECKING:
    from reaper.api.server import Server, Tls
    from reaper.wiring import Parts

NAME = "run"
HELP = "watch, decide, warn and, where allowed, act; the daemon"
LOG_LEVEL = "info"
EXAMPLES = """\
examples:
  reaper run                                    observe with whatever credentials are present; touches nothing
  reaper run --config /etc/idle-reaper          by your own policies
  reaper run --observe --config reaper.toml     the same, and whatever it says, touch nothing
  reaper run --once --config reaper.toml        one cycle, then the plan as a table
  reaper run --listen 0.0.0.0:9464 --tls-cert cert.pem --tls-key key.pem
  REAPER_STORE=postgresql://reaper@db/reaper reaper run --role ingest --listen 0.0.0.0:9464
                                                one of several doors over one database; control is the other half

Agents report to POST /v1/reports at --listen; /healthz, /readyz and /metrics are there too.
With PostgreSQL (--store) several doors (--role ingest) and a pair that decides (--role control) share one database; of the pair one leads.
SIGTERM and SIGINT end it, SIGHUP begins the next cycle at once. A file named STOP in the state folder keeps everything up.
exit codes: 0 ended, 1 failed, 2 usage or configuration, 3 (--once) there are no machines, 4 (--once) another reaper leads
"""

ROLES = ("all", "ingest", "control")
LISTEN = "127.0.0.1:9464"
END_WITHIN_S = 8.0
"""Seconds between a signal and the end, at most; what stops containers usually waits for ten."""

_log = log.get(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", default=LISTEN, metavar="HOST:PORT", help=f"where agents report (default {LISTEN}; port 0 takes a free one)")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate with its chain, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM")
    parser.add_argument(
        "--role", choices=ROLES, default="all",
        help="all (default); ingest: takes reports and needs no configuration and no credentials; control: decides and acts, and takes no reports",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="one cycle, print the plan, end; takes no reports")
    parser.add_argument("--observe", action="store_true", help="touch nothing, whatever the configuration says or will say")


def run(args: argparse.Namespace) -> int:
    """Raises ConfigurationError, UsageError, Refused, StoreError, ReaperError when it cannot listen."""
    host, port = address(args.listen)
    if (args.tls_cert is None) != (args.tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together")
    _fits_store(args)
    if args.role == "ingest":
        return _take_reports(args, host, port)
    live = LiveConfiguration(config.find(args.config))
    configuration, _ = live.current()
    ceiling = Mode.OBSERVE if args.observe else None
    if args.once:
        with parts_of(args, configuration, ceiling) as parts:
            return _once(args, _daemon(parts, live), parts)
    with _ended_by_signals() as ending, parts_of(args, configuration, ceiling) as parts:
        daemon = _daemon(parts, live)
        server = _door(parts, daemon, host, port, args)
        try:
            server.start()
            _announce(configuration, parts, args, host, server.port)
            daemon.run(ending)
        finally:
            server.stop()
    _log.info("reaper ended")
    return exits.DONE


def _fits_store(args: argparse.Namespace) -> None:
    """Raises UsageError for a role that this store or the other options do not allow."""
    if args.role == "all":
        return
    from reaper.wiring import is_shared

    if not is_shared(args.store):
        raise UsageError(
            f"--role {args.role} shares its store with processes elsewhere, which a file of this machine cannot do:"
            " name a PostgreSQL database with --store or $REAPER_STORE (postgresql://USER@HOST/DATABASE), or leave --role out"
        )
    if args.role == "ingest" and args.once:
        raise UsageError("--once runs a cycle, and the role ingest has none; leave one of them out")


def _take_reports(args: argparse.Namespace, host: str, port: int) -> int:
    """The role ingest. Raises StoreError, ReaperError when it cannot listen."""
    from reaper.api.app import App
    from reaper.api.server import Server
    from reaper.service.tokens import Verifier
    from reaper.wiring import build_door

    door = build_door(args.store, check=False, clock=args.clock)
    try:

        def readiness() -> str | None:
            door.store.held_lease()  # raises where the store cannot be reached
            return None

        app = App(door.ingest, Verifier(door.store), readiness, door.metrics.render, metrics=door.metrics, clock=door.clock)
        server = Server(app, host, port, _tls(args.tls_cert, args.tls_key))
        with _ended_by_signals() as ending:
            try:
                server.start()
                _log.info("reaper started", role=args.role, store=door.where)
                _listening(args, host, server.port)
                while not ending.wait(3600.0):
                    pass
            finally:
                server.stop()
    finally:
        door.store.close()
    _log.info("reaper ended")
    return exits.DONE


def _daemon(parts: "Parts", live: LiveConfiguration) -> Daemon:
    return Daemon(parts.store, parts.watch, parts.cycle, parts.leader, parts.clock, live, parts.metrics, parts.ceiling, seen=Teller(), shelves=parts.shelves)


def address(text: str) -> tuple[str, int]:
    """Of HOST:PORT, [IPV6]:PORT, with or without http:// or https:// before it. Raises UsageError."""
    host, colon, port = text.removeprefix("http://").removeprefix("https://").rstrip("/").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--listen {text!r} is not HOST:PORT; write 127.0.0.1:9464, 0.0.0.0:9464 or [::]:9464")
    return host, int(port)


def loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


# --- one cycle --------------------------------------------------------------------------------------------------------


def _once(args: argparse.Namespace, daemon: Daemon, parts: "Parts") -> int:
    daemon.watch.rebuild(daemon.store, daemon.clock.now())
    configuration = daemon.bounded()
    try:
        result = daemon.once(configuration, None)
    finally:
        parts.leader.release()
    if result is None and not daemon.leading:
        raise Refused("another reaper leads; `reaper plan` shows what it would do")
    if result is None:
        if args.json:
            screen.result({"error": "the cycle broke off; the log says why", "kind": "CycleFailed"})
        return exits.FAILED
    told = fleet.document(result, configuration)
    if args.json:
        screen.result(told | {"results": [_result(r.planned.name, r.attempt.id if r.attempt else None, r.withdrawn) for r in result.results]})
    else:
        console = screen.console()
        fleet.show(told, args.clock.now(), console)
        for done in result.results:
            outcome = done.withdrawn or (done.attempt and done.attempt.outcome) or "under way"
            screen.say(console, f"{done.planned.action} {done.planned.name} ({done.planned.resource}): {outcome}")
        screen.say(console, f"plan {result.plan.id}")
    return exit_code(told, unreadable=fleet.unreadable(result.inventory))


def _result(name: str, attempt: str | None, withdrawn: str | None) -> dict[str, str | None]:
    return {"name": name, "attempt": attempt, "withdrawn": withdrawn}


# --- the daemon -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Teller:
    """Called after each cycle. Says what cannot be read when that changes, not every minute."""

    told: tuple[str, ...] | None = field(default=None)

    def __call__(self, result: CycleResult) -> None:
        failed = tuple(sorted((*result.inventory.problems, *(f"{one.place}: {one.failed}" for one in result.inventory.failed))))
        running = sum(row.candidate.instance.state.counts for row in result.rows)
        if self.told is None:
            _log.info("first cycle ended", machines=len(result.rows), running=running, took_s=round(result.took.total_seconds(), 2))
        if failed and failed != self.told:
            hint = fleet.credentials_hint(list(failed))
            for because in failed:
                _log.warning("not readable; tried again each cycle", because=because, **({"remedy": hint} if hint else {}))
        elif self.told and not failed:
            _log.info("everything is readable again")
        self.told = failed
        _log.debug("cycle ended", machines=len(result.rows), running=running, plan=result.plan.id, actions=len(result.plan.actions))


def _door(parts: "Parts", daemon: Daemon, host: str, port: int, args: argparse.Namespace) -> "Server":
    from reaper.api.app import App
    from reaper.api.server import Server
    from reaper.service.tokens import Verifier

    def readiness() -> str | None:
        return None if daemon.ready else "the first cycle has not ended yet"

    ingest = None if args.role == "control" else parts.ingest
    app = App(ingest, Verifier(parts.store), readiness, parts.metrics.render, metrics=parts.metrics, clock=parts.clock)
    return Server(app, host, port, _tls(args.tls_cert, args.tls_key))


def _tls(certificate: str | None, key: str | None) -> "Tls | None":
    from reaper.api.server import Tls

    return Tls(Path(certificate), Path(key)) if certificate is not None and key is not None else None


def _listening(args: argparse.Namespace, host: str, port: int) -> None:
    scheme = "https" if args.tls_cert is not None else "http"
    shown = f"[{host}]" if ":" in host else host
    _log.info("listening", address=f"{scheme}://{shown}:{port}")
    if scheme == "http" and not loopback(host) and args.role != "control":
        _log.warning("reports and tokens travel unencrypted; use --tls-cert and --tls-key, or a proxy that adds TLS", address=f"{scheme}://{shown}:{port}")


def _announce(configuration: Configuration, parts: "Parts", args: argparse.Namespace, host: str, port: int) -> None:
    _log.info(
        "reaper started", role=args.role, mode=configuration.mode.value, ceiling=parts.ceiling.value, name=configuration.name,
        policies=[f"{policy.name} ({policy.mode}, {policy.action})" for policy in configuration.policies],
        configuration=configuration.source, digest=configuration.digest, state=str(Path(args.state).absolute()), store=parts.where, cycle_s=configuration.cycle.total_seconds(),
    )  # fmt: skip
    if configuration.source == config.BUILT_IN:
        _log.info("no configuration found: the built-in one observes what the credentials show, and touches nothing")
    _listening(args, host, port)
    for remark in config.remarks(configuration, parts.clock.now()):
        _log.warning("look at the configuration", remark=remark)
    brake = parts.brakes.engaged()
    if brake is not None:
        _log.warning("kill switch engaged: nothing is taken away", because=brake)


class Ending:
    """What the daemon's loop waits on: set by SIGTERM or SIGINT, and its wait cut short by SIGHUP."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = False
        self._nudged = False

    def is_set(self) -> bool:
        return self._asked

    def set(self) -> None:
        with self._changed:
            self._asked = True
            self._changed.notify_all()

    def nudge(self) -> None:
        with self._changed:
            self._nudged = True
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._asked or self._nudged, timeout)
            self._nudged = False
            return self._asked


@contextmanager
def _ended_by_signals() -> Iterator[Ending]:
    """
    A signal's number goes through a pipe to a thread of its own. A handler that touched the lock which the main thread
    is just waiting on would never return, and one in Python would not run before that wait ends.
    """
    ending, over = Ending(), threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        while (byte := os.read(reading, 1)) != b"\0":
            number = byte[0]
            if number == signal.SIGHUP:
                ending.nudge()
            elif number in (signal.SIGTERM, signal.SIGINT) and not ending.is_set():
                _log.info("ending", signal=signal.Signals(number).name)
                ending.set()
                threading.Thread(target=give_up, name="ending", daemon=True).start()

    def give_up() -> None:
        if not over.wait(END_WITHIN_S):
            _log.error("the cycle did not end in time; ended without it, the next start closes what it left open")
            os._exit(exits.FAILED)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    pipe_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    thread = threading.Thread(target=listen, name="signals", daemon=True)
    thread.start()
    try:
        yield ending
    finally:
        over.set()
        signal.set_wakeup_fd(pipe_before)
        for number, old in before.items():
            signal.signal(number, old)
        os.write(writing, b"\0")
        thread.join()
        os.close(reading)
        os.close(writing)
