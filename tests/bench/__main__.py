"""
python -m tests.bench NAME [--json]

    python -m tests.bench decide
    python -m tests.bench all --json

Prints a row per measurement: value, baseline of the same run, ratio, bar, whether it holds. Exit 0 when every bar holds.
"""

import argparse
import sys
from collections.abc import Callable

from tests.bench import agent, commands, cycle, cycle_gcp, decide, loader_hook, torch_loader
from tests.bench.rows import Row, show

BENCHES: dict[str, Callable[[], list[Row]]] = {
    "decide": decide.run,
    "commands": commands.run,
    "agent": agent.run,
    "loader_hook": loader_hook.run,
    "cycle": cycle.run,
    "cycle_gcp": cycle_gcp.run,
}
BY_NAME_ONLY: dict[str, Callable[[], list[Row]]] = {"torch_loader": torch_loader.run}  # needs what a usual machine has not


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*BENCHES, *BY_NAME_ONLY, "all"])
    parser.add_argument("--json", action="store_true", help="one object on the last line of standard output")
    args = parser.parse_args()
    rows = [row for name, bench in BENCHES.items() if args.name in (name, "all") for row in bench()]
    rows += BY_NAME_ONLY[args.name]() if args.name in BY_NAME_ONLY else []
    show(rows, args.json)
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
