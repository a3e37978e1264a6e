"""
A whole observe cycle over 10,000 instances (list, keep, decide, mark, plan) against a plain boto3 paginator over the same
canned endpoint, each a process of its own in the same run; and the calls of a steady cycle.

The endpoint is a third process, so that its own cost is in neither figure. The median of three processes each.
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from tests.bench.ec2_pages import PAGE, REGION
from tests.bench.rows import Row, measured

MACHINES, ROUNDS, BAR = 10_000, 3, 1.1

_MEASURE = """
import json, resource, sys
def told(**more):
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu_s": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024, **more}))
"""

PAGINATOR = _MEASURE + """
import boto3
client = boto3.client("ec2", region_name=sys.argv[2], endpoint_url=sys.argv[1])
count = 0
for page in client.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 1000}):
    for reservation in page["Reservations"]:
        count += len(reservation["Instances"])
told(count=count)
"""

CYCLE = _MEASURE + """
import tempfile
from pathlib import Path
from urllib.request import urlopen
from reaper import config, wiring
document = {
    "schema": 1, "gang": {"same": ["placement-group"]}, "clouds": {"aws": {"regions": [sys.argv[2]], "endpoint": sys.argv[1]}},
    "policy": {name: {"when": {"tags": {"phase": [name]}}} for name in ("exploration", "training", "evaluation")},
}
configuration = config.parse(document, "bench")
with tempfile.TemporaryDirectory() as folder:
    parts = wiring.build(configuration, Path(folder))
    count = 0
    for cycle in range(int(sys.argv[3])):
        urlopen(sys.argv[1]).read()
        lease = parts.leader.renew()
        count = len(parts.cycle.run(configuration, lease).rows)
    calls = json.loads(urlopen(sys.argv[1]).read())
    told(count=count, calls=calls)
    parts.store.close()
"""


def run() -> list[Row]:
    with endpoint(MACHINES) as url:
        bare = [process(PAGINATOR, url) for _ in range(ROUNDS)]
        whole = [process(CYCLE, url, "1") for _ in range(ROUNDS)]
        steady = process(CYCLE, url, "3")
    assert {one["count"] for one in (*bare, *whole, steady)} == {MACHINES}
    cpu, bare_cpu = (median(one["cpu_s"] for one in many) for many in (whole, bare))
    peak, bare_peak = (median(one["peak_mib"] for one in many) for many in (whole, bare))
    calls, least = sum(steady["calls"].values()), -(-MACHINES // PAGE)
    told = ", ".join(f"{count} {name}" for name, count in sorted(steady["calls"].items()))
    each = (steady["cpu_s"] - cpu) / 2
    return [
        measured(f"cycle: CPU of a process that observes {MACHINES:,} machines once", cpu, "s", f"at most {BAR} times the paginator", cpu <= BAR * bare_cpu, bare_cpu),
        measured("cycle: its peak memory", peak, "MiB", f"at most {BAR} times the paginator", peak <= BAR * bare_peak, bare_peak),
        measured("cycle: peak memory of three cycles, of which each holds the listing before it", steady["peak_mib"], "MiB", "", True, bare_peak),
        measured(f"cycle: calls of a steady cycle ({told})", calls, "calls", "the pages of the listing and no call a machine", calls == least, least),
        measured("cycle: CPU of each further cycle", each, "s", "", True),
    ]


def process(code: str, url: str, *more: str) -> dict[str, float]:
    environment = {
        **os.environ, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    line = [sys.executable, "-c", code, url, REGION, *more]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def endpoint(count: int) -> Iterator[str]:
    server = subprocess.Popen([sys.executable, "-m", "tests.bench.ec2_pages", str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        urllib.request.urlopen(url).read()
        yield url
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait(10)
