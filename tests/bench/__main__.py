"""
python -m tests.bench NAME [--json]

    python -m tests.bench decide
    python -m tests.bench all --json

Prints a row per measurement: value, baseline of the same run, ratio, bar, whether it holds. Exit 0 when every bar holds.
"""

import argparse
import sys
from collections.abc import Callable

from tests.bench import agent, commands, cycle, cycle_gcp, decide
from tests.bench.rows import Row, show

BENCHES: dict[str, Callable[[], list[Row]]] = {"decide": decide.run, "commands": commands.run, "agent": agent.run, "cycle": cycle.run, "cycle_gcp": cycle_gcp.run}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*BENCHES, "all"])
    parser.add_argument("--json", action="store_true", help="one object on the last line of standard output")
    args = parser.parse_args()
    rows = [row for name, bench in BENCHES.items() if args.name in (name, "all") for row in bench()]
    show(rows, args.json)
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
