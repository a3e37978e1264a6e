"""
What knowing 5,000 of Google's machines costs a cycle, against Google's own client reading the same pages and doing nothing.

The pages are rendered beforehand and served by another process, so that both sides are measured without the server. The
requests are counted there: on the steady path there is one a page, and none for a machine.
"""

import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.bench.rows import Row, measured

MACHINES, ROUNDS = 5_000, 7
PROJECT, ZONES, TYPES = "ml-research", ("us-central1-a", "europe-west4-b", "us-east1-c"), ("g2-standard-8", "n1-standard-8", "a2-highgpu-1g", "e2-standard-8")
BAR = 1.1


def run() -> list[Row]:
    serving = subprocess.Popen([sys.executable, "-m", "tests.bench.cycle_gcp", str(MACHINES)], stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    try:
        return _measure(serving.stdout.readline().strip())
    finally:
        serving.terminate()
        serving.wait(timeout=20)


def _measure(url: str) -> list[Row]:
    from reaper.clock import SystemClock
    from reaper.clouds.gcp import GcpCloud
    from reaper.clouds.gcp.pace import Pace
    from reaper.demo.compute_server import ComputeServer
    from reaper.model.policy import GcpCloud as Settings
    from tests.fakes.gce import google_client

    clock = SystemClock()
    # the pace is a promise to others in the project and not a cost; pages of 5,000 machines are within its burst anyway
    cloud = GcpCloud(Settings((PROJECT,), endpoint=url, price_list=False), clock=clock, pace=Pace(clock, per_s=1000, burst=1000))
    nobody = ComputeServer()
    nobody.url = url
    client = google_client("Instances", nobody)

    def bare() -> int:
        return sum(1 for _ in client.aggregated_list(request={"project": PROJECT, "max_results": 500}).pages)

    def ours() -> int:
        return sum(len(place.instances) for place in cloud.list())

    pages, found = bare(), ours()  # the first of each loads, connects and learns the types
    assert found == MACHINES, f"{found} of {MACHINES} machines"
    before = _requests(url)
    cpu: dict[str, list[float]] = {"bare": [], "ours": []}
    wall: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(ROUNDS):
        for name, call in (("bare", bare), ("ours", ours)):
            spent, took = _timed(call)
            cpu[name].append(spent)
            wall[name].append(took)
    asked = (_requests(url) - before) / ROUNDS - pages
    rows = [_row("CPU", cpu), _row("time", wall)]
    rows.append(measured("cycle_gcp: requests a listing", asked, "requests", "one a page, none a machine", asked == pages, pages))
    return rows


def _row(what: str, figures: dict[str, list[float]]) -> Row:
    """Medians of rounds that took turns: whatever else runs here meets both."""
    value, baseline = statistics.median(figures["ours"]), statistics.median(figures["bare"])
    name = f"cycle_gcp: {what} of listing {MACHINES:,} machines"
    if what != "CPU":  # on a machine that others use, too, it says as much of them
        return measured(name, value, "s", "", True, baseline)
    return measured(name, value, "s", f"at most {BAR} times the bare listing", value <= BAR * baseline, baseline)


def _timed(call: Callable[[], int]) -> tuple[float, float]:
    spent, began = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - spent, time.perf_counter() - began


def _requests(url: str) -> int:
    with urllib.request.urlopen(f"{url}/requests") as answer:
        return int(answer.read())


# --- the other process ------------------------------------------------------------------------------------------------


def pages_of(machines: int) -> dict[str, bytes]:
    """By page token ("" for the first), as the fake server would answer."""
    from reaper.demo.compute_world import World

    world = World(base="https://www.googleapis.com", zones={PROJECT: ZONES})
    for number in range(machines):
        labels = {"team": "ml", "phase": "training", "owner": f"user-{number % 50}", "job-group": f"run-{number // 4}", "cost-center": "4711"}
        script = "#!/bin/bash\nset -eu\n" + "pip install -q torch\n" * 20
        world.launch(
            f"m-{number}", PROJECT, ZONES[number % len(ZONES)], TYPES[number % len(TYPES)], labels=labels,
            metadata={"fingerprint": "x", "items": [{"key": "enable-oslogin", "value": "true"}, {"key": "startup-script", "value": script}]},
            serviceAccounts=[{"email": "trainer@ml-research.iam.gserviceaccount.com", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}],
            shieldedInstanceConfig={"enableSecureBoot": False, "enableVtpm": True, "enableIntegrityMonitoring": True},
        )  # fmt: skip
    found: dict[str, bytes] = {}
    token: str | None = ""
    while token is not None:
        page = world.aggregated("instances", PROJECT, 500, token)
        found[token] = json.dumps(page).encode()
        token = page.get("nextPageToken")
    return found


def serve(machines: int) -> None:
    from reaper.demo.compute_world import World

    pages, types, lock, asked = pages_of(machines), World(zones={PROJECT: ZONES}), threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            if address.path == "/requests":
                body = str(asked[0]).encode()
            else:
                with lock:
                    asked[0] += 1
                if "/machineTypes/" in address.path:
                    body = json.dumps(types.machine_type(PROJECT, ZONES[0], address.path.rpartition("/")[2])).encode()
                else:
                    body = pages[parse_qs(address.query).get("pageToken", [""])[0]]
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
