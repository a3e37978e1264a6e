"""The command line of `reaper-agent`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Sequence

from agent.config import ENV_PREFIX

_EXAMPLES = """\
examples:
  reaper-agent run                              as the service runs it (/etc/reaper-agent/agent.toml)
  reaper-agent run --config ./agent.toml --once one window, one report, then exit
  REAPER_AGENT_REAPER=https://reaper.example.com REAPER_AGENT_TOKEN_FILE=/etc/reaper-agent/token reaper-agent run
  reaper-agent status                           what it last saw and sent, and what is planned for this machine
  reaper-agent status --json | tail -n 1        the same for machines
  reaper-agent keep 4h --reason "demo tonight"  keep this machine, at most for as long as the reaper's operator allows
  reaper-agent keep --off                       take that back (root: everybody's)
  sudo -u reaper-agent reaper-agent doctor      what it cannot see with its rights, what is lost by that and what to do

exit codes: 0 done, 1 failed, 2 usage or configuration
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Exits with 2 and the usage when they make no command."""
    return _parser().parse_args(words)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reaper-agent",
        description="Samples this machine's GPUs and tells the reaper once a minute. It stops nothing and runs no command from the network.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, metavar="FILE", help="settings (default: $%sCONFIG, else /etc/reaper-agent/agent.toml)" % ENV_PREFIX)
    commands = parser.add_subparsers(dest="command", required=True, metavar="run|status|keep|doctor")
    running = commands.add_parser("run", parents=[common], help="sample and report until stopped", description="Sample and report until stopped (SIGTERM, Ctrl-C).")
    running.add_argument("--once", action="store_true", help="one window, one report, then exit: 0 if the reaper took it, else 1")
    showing = commands.add_parser("status", parents=[common], help="what the agent last saw and sent", description="Show what the agent last saw and sent. Exit 1 when it does not run.")
    showing.add_argument("--json", action="store_true", help="one JSON object on the last line")
    keeping = commands.add_parser(
        "keep",
        parents=[common],
        help="keep this machine for a while",
        description="Ask that this machine is kept. Exit 1 when no agent runs here or it refuses, 2 when the span or the reason makes no sense.",
        epilog='examples:\n  reaper-agent keep 4h --reason "demo tonight"\n  reaper-agent keep 1h30m --reason "copying results"\n  reaper-agent keep --off\n',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    keeping.add_argument("span", nargs="?", metavar="SPAN", help="for how long, as 30m, 4h, 1h30m or 2d; of two the later end counts")
    keeping.add_argument("--reason", metavar="TEXT", help="why; it is shown to whoever asks why the machine is kept")
    keeping.add_argument("--off", action="store_true", help="take back what you asked for; root takes back everybody's")
    keeping.add_argument("--json", action="store_true", help="one JSON object on the last line")
    testing = commands.add_parser(
        "doctor",
        parents=[common],
        help="what the agent cannot see on this machine, and what to do",
        description="Check rights, driver, metadata, clock, the way to the reaper and the spool. Sends no report. Exit 1 when a check fails.",
    )
    testing.add_argument("--json", action="store_true", help="one JSON object on the last line")
    return parser
