"""
What the agent costs a GPU host, against Debian's prometheus-node-exporter in the same run.

The agents are whole processes as on a host: the packaged set of modules and nothing else, the compiled fake driver with
8 GPUs, the distribution's Python where there is one, TLS with the system's certificates, logging, a 5 s beat and a push a minute, nothing shortened, so that every
sample finds cold caches. Each lives in a PID namespace of its own, so that three of them see 10, 300 and 1,000 processes
at the same time and share the machine's noise. The exporter is scraped every 15 s meanwhile. The driver's own time in a
call is not in the figures: the fake answers at once. Only the search for growth runs in compressed time.
"""

import contextlib
import gzip
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from tests.bench.rows import Row, measured
from tests.fakes import nvml

ROOT = Path(__file__).resolve().parents[2]
EXPORTER, EXPORTER_PORT = "prometheus-node-exporter", 19109
GPUS, FEW, SOME, MANY = 8, 10, 300, 1000
WARM_S, MEASURED_S, SCRAPE_EVERY_S = 64.0, 120.0, 15.0  # two minutes: some of the agent's looks are taken every other minute
SETTLING_SCRAPES = 60
SETTLES_S, STARTS_WITHIN_S = 1, 2.0  # the others of its namespace are up before the agent starts, and it before the next one
WINDOWS, FIRST_LOOK = 10_000, 1_000
PACKAGED = ("nvidia-ml-py", "psutil", "structlog")


def run() -> list[Row]:
    missing = [tool for tool in (EXPORTER, "unshare", "openssl", "gcc") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        what = "needs root" if not missing else f"{missing[0]} is not installed: apt-get install -y --no-install-recommends {missing[0]}"
        return [Row(f"agent: not measured, {what}", 0.0, "", bar="measured against the exporter", ok=False)]
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as name:
        folder = Path(name)
        package(folder / "package")
        library = nvml.build(folder / "driver")
        with door(folder) as reaper:
            return [*side_by_side(folder, library, reaper), *growth(folder, library, reaper)]


def package(folder: Path) -> None:
    """The agent and the distributions it imports, compiled, as an installation has them; nothing else can be imported."""
    shutil.copytree(ROOT / "agent", folder / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    for name in PACKAGED:
        for file in distribution(name).files or ():
            if not {"..", "__pycache__"} & set(file.parts):
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target)
    subprocess.run([interpreter(), "-m", "compileall", "-q", str(folder)], check=True)


def interpreter() -> str:
    """The distribution's own Python, as a host runs the agent (and as the exporter is the distribution's); else this one."""
    system = "/usr/bin/python3"
    line = [system, "-c", "import sys; sys.exit(sys.version_info < (3, 9))"]
    return system if Path(system).exists() and subprocess.run(line, check=False).returncode == 0 else sys.executable


@dataclass
class Door:
    """An HTTPS server in the reaper's place. ``came``: per resource the bytes of each report as it was sent."""

    url: str = ""
    certificates: Path = Path()
    came: dict[str, list[int]] = field(default_factory=dict)
    cpu_at_first: dict[str, float] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)

    def take(self, body: bytes, coding: str) -> int:
        report = json.loads(gzip.decompress(body) if coding == "gzip" else body)
        name = report["resource"]
        self.came.setdefault(name, []).append(len(body))
        self.last[name] = report
        if name in self.pids:
            self.cpu_at_first.setdefault(name, cpu_s(self.pids[name]))
        return int(report["seq"])


@contextlib.contextmanager
def door(folder: Path) -> Iterator[Door]:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True,
    )  # fmt: skip
    made = Door()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms for the acknowledgement of its head

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = json.dumps({"seq": made.take(body, self.headers.get("Content-Encoding", ""))}).encode()
            self.send_response(202)
            self.send_header("Accept-Encoding", "gzip")  # as the reaper's own door does
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            return

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.daemon_threads = True
    made.url = f"https://localhost:{server.server_address[1]}"
    # The system's folder of authorities with ours among them.
    made.certificates = folder / "certificates"
    system = ssl.get_default_verify_paths().capath
    if system is not None and Path(system).is_dir():
        shutil.copytree(system, made.certificates, symlinks=True)
    made.certificates.mkdir(exist_ok=True)
    known_as = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", certificate], check=True, capture_output=True, text=True).stdout.strip()
    shutil.copy(certificate, made.certificates / f"{known_as}.0")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its threads, living and ended, by the kernel's own nanosecond clock of it."""
    return time.clock_gettime((~pid << 3) | 2)


def rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"process {pid} shows no memory")


def resource_of(processes: int) -> str:
    return f"aws:123456789012:eu-west-1:instance:i-{processes}"


def environment(folder: Path, library: Path, state: nvml.State, reaper: Door, processes: int) -> dict[str, str]:
    (folder / "token").write_text("token-of-this-host\n")
    (folder / "token").chmod(0o600)
    settings = {
        "reaper": reaper.url, "token_file": folder / "token", "state_dir": folder / f"state-{processes}", "resource": resource_of(processes),
        "hook_socket": folder / f"hook-{processes}.sock",
    }  # fmt: skip
    file = folder / f"agent-{processes}.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in settings.items()))
    return {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "package"), "REAPER_AGENT_CONFIG": str(file),
        "SSL_CERT_DIR": str(reaper.certificates), **nvml.environment(library, state),
    }  # fmt: skip


def write_gpus(state: nvml.State, first_pid: int) -> None:
    state.write(
        f"count {GPUS}", "gpu * util 37", "gpu * mem 61000 81920", "gpu * power 412345", "gpu * mig 0",
        *(f"gpu {i} energy {987654321000 + 123456 * i}" for i in range(GPUS)),
        *(f"gpu {i} proc {first_pid + i} 60500" for i in range(GPUS)),
    )  # fmt: skip


@contextlib.contextmanager
def agent(folder: Path, library: Path, reaper: Door, processes: int) -> Iterator[int]:
    """The agent among so many idle processes; the first eight of them hold the GPUs. Gives its pid out here."""
    state = nvml.State(folder / f"gpus-{processes}")
    # Process 1 is the shell that becomes the agent, 2 the one that starts the others: what that costs is not the agent's.
    write_gpus(state, 3)
    spawn = f"(i=1; while [ $i -lt {processes} ]; do sleep 3600 & i=$((i+1)); done); sleep {SETTLES_S}; exec {interpreter()} -S -m agent run"
    log = (folder / f"log-{processes}").open("wb")
    outer = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", spawn],
        env={**environment(folder, library, state, reaper, processes), nvml.STEADY_VARIABLE: "1"}, cwd=folder, stdout=log, stderr=log,
    )  # fmt: skip
    try:
        pid = 0
        for _ in range(600):
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            if children and b"-m\0agent" in Path(f"/proc/{children[0]}/cmdline").read_bytes():
                pid = int(children[0])
                break
            time.sleep(0.05)
        assert pid, (folder / f"log-{processes}").read_text()
        reaper.pids[resource_of(processes)] = pid
        time.sleep(STARTS_WITHIN_S)  # the next one starts when this one is up
        yield pid
        os.kill(pid, signal.SIGTERM)
        outer.wait(20)
    finally:
        outer.kill()
        outer.wait()
        log.close()


@contextlib.contextmanager
def exporter(folder: Path) -> Iterator[int]:
    with (folder / "exporter.log").open("wb") as log:
        process = subprocess.Popen([EXPORTER, f"--web.listen-address=127.0.0.1:{EXPORTER_PORT}"], stdout=log, stderr=log)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait()


def scrape() -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{EXPORTER_PORT}/metrics", timeout=10) as answer:
        return len(answer.read())


def side_by_side(folder: Path, library: Path, reaper: Door) -> list[Row]:
    with contextlib.ExitStack() as stack:
        theirs = stack.enter_context(exporter(folder))
        ours = {n: stack.enter_context(agent(folder, library, reaper, n)) for n in (FEW, SOME, MANY)}
        _scraped_for(WARM_S)
        before = {pid: cpu_s(pid) for pid in (theirs, *ours.values())}
        _scraped_for(MEASURED_S)
        spent = {pid: cpu_s(pid) - cpu for pid, cpu in before.items()}
        scale = 60.0 / MEASURED_S * 1000
        memory = {n: rss_mib(pid) for n, pid in ours.items()}
        for _ in range(SETTLING_SCRAPES):  # one that has run for weeks has touched all its memory
            scrape()
        exporter_mib = rss_mib(theirs)
        few, some, many, base = (spent[pid] * scale for pid in (*ours.values(), theirs))
    name = resource_of(SOME)
    if not all(resource_of(n) in reaper.came for n in ours):
        print((folder / f"log-{SOME}").read_text()[-2000:], file=sys.stderr)
        return [Row("agent: no report came", 0.0, "", bar="a report a minute", ok=False)]
    first, sizes = min(reaper.cpu_at_first.values()) * 1000, reaper.came[name]
    busy = [gpu.get("peak_ratio") for gpu in reaper.last[name]["gpus"]] == [0.37] * GPUS
    return [
        measured("agent: resident with TLS and logging", memory[SOME], "MiB", "at most 1.5x the exporter", memory[SOME] <= 1.5 * exporter_mib, exporter_mib),
        measured("agent: CPU a minute, push included, 300 processes", some, "ms", "at most 0.6x the exporter", some <= 0.6 * base, base),
        measured("agent: CPU a minute, 1,000 processes against 10", many, "ms", "at most 1.1x", many <= 1.1 * few, few),
        measured("agent: CPU up to the first report, its first minute included, best of three", first, "ms", "under 200 ms", first < 200),
        measured(f"agent: report of {GPUS} busy GPUs, compressed (baseline: plain, as sent before the reaper said that it takes that)", sizes[-1], "bytes", "under 2 KB", sizes[-1] < 2048 and busy, sizes[0]),
    ]


def _scraped_for(seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        scrape()
        rest = end - time.monotonic()
        time.sleep(max(0.0, min(rest, SCRAPE_EVERY_S)))
        if rest <= SCRAPE_EVERY_S:
            return


def growth(folder: Path, library: Path, reaper: Door) -> list[Row]:
    """The agent's own loop with a clock that jumps over every wait; the processes on the GPUs change all the time."""
    state = nvml.State(folder / "gpus-growth")
    write_gpus(state, 1)
    done = subprocess.run(
        [interpreter(), "-S", "-c", Path(__file__).with_name("agent_growth.py").read_text(), str(WINDOWS), str(FIRST_LOOK), str(state.path)],
        env=environment(folder, library, state, reaper, 0), cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr)
        return [Row("agent: growth not measured", 0.0, "MiB", bar="no growth", ok=False)]
    early, late = (float(word) for word in done.stdout.split()[-2:])
    return [measured(f"agent: resident after {WINDOWS:,} windows, against {FIRST_LOOK:,}", late, "MiB", "no growth (0.5 MiB)", late <= early + 0.5, early)]
