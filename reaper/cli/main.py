"""
The command `reaper`: finds the one that was asked for, and loads nothing else.

Only the standard library is imported here and the table below repeats each command's HELP, so that `reaper --help`
answers at once; a test holds the two together. Our own errors become one line on standard error and an exit code.
"""

import argparse
import importlib
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from reaper.cli import exits, options
from reaper.errors import CloudError, ConfigurationError, LeaseLost, ReaperError, Refused, UsageError

if TYPE_CHECKING:
    from reaper.ports import Clock, Cloud

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("reaper.cli.run", "watch, decide, warn and, where allowed, act; the daemon"),
    "plan": ("reaper.cli.plan", "show what would happen now, and why; touches nothing"),
    "why": ("reaper.cli.why", "explain one machine: verdict, findings, countdown, reports"),
    "apply": ("reaper.cli.apply", "carry out a plan now, through the same gates as the daemon"),
    "snooze": ("reaper.cli.snooze", "keep a machine for a while"),
    "schedule": ("reaper.cli.schedule", "show what a schedule does in the coming week, or what is done with a machine"),
    "undo": ("reaper.cli.undo", "start again what was stopped"),
    "audit": ("reaper.cli.audit", "show what was done, withheld and said, and by whom"),
    "report": ("reaper.cli.report", "list what costs money and does no work, the dearest first"),
    "inventory": ("reaper.cli.inventory", "show the machines as last listed"),
    "token": ("reaper.cli.token", "issue, list and revoke the tokens with which agents report"),
    "check": ("reaper.cli.check", "validate a configuration and show what it comes to"),
    "demo": ("reaper.cli.demo", "see it work in a minute, on this machine alone"),
}

OVERVIEW = """\
usage: reaper COMMAND [options]

Finds idle GPU machines, warns their owners, looks again, and only then turns them off.
Without a configuration it observes whatever the credentials show, and touches nothing.

commands:
{commands}

  reaper COMMAND --help    what a command does, its options, examples
  reaper --version

exit codes: 0 done, 1 failed, 2 usage or configuration, 3 nothing to do, 4 refused
"""


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would end the process; its verbs' parsers do the same."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def main(words: Sequence[str] | None = None, *, clock: "Clock | None" = None, clouds: "Mapping[str, Cloud] | None" = None) -> int:
    """The exit code. ``clock`` and ``clouds`` stand in for the real ones."""
    given = list(sys.argv[1:] if words is None else words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name in another script must not end a command
    try:
        code = _dispatch(given, clock, clouds)
        sys.stdout.flush()
    except ReaperError as error:
        return _tell(error, given)
    except BrokenPipeError:
        _let_go_of_stdout()
        return exits.PIPE_CLOSED
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except SystemExit as ended:  # argparse after --help
        return ended.code if isinstance(ended.code, int) else exits.DONE
    except Exception as error:
        if "--json" in given:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        raise
    return code


def parser_of(name: str) -> tuple[Parser, Any]:
    """The command's parser and its module. Raises KeyError for an unknown command."""
    module = importlib.import_module(COMMANDS[name][0])
    parser = Parser(
        prog=f"reaper {name}", description=f"{module.HELP[0].upper()}{module.HELP[1:]}.", epilog=module.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    module.add_arguments(parser)
    options.add_common(parser)
    return parser, module


def _dispatch(words: list[str], clock: "Clock | None", clouds: "Mapping[str, Cloud] | None") -> int:
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(OVERVIEW.format(commands="\n".join(f"  {name:<10} {help}" for name, (_, help) in COMMANDS.items())), end="")
        return exits.DONE if words else exits.USAGE
    if words[0] == "--version":
        from importlib.metadata import version

        print(f"reaper {version('idle-reaper')}")
        return exits.DONE
    name = words[0]
    if name not in COMMANDS:
        raise UsageError(_unknown(name, words))
    parser, module = parser_of(name)
    args = parser.parse_args(words[1:])
    if args.state is None:
        args.state = str(options.state_folder())
    if args.state == "":
        raise UsageError("the state folder is empty text; name a folder, or leave --state out")
    args.state = os.path.expanduser(args.state)
    args.store = args.store or os.environ.get(options.STORE_ENVIRONMENT) or None
    args.clock, args.clouds = clock if clock is not None else _system_clock(), clouds
    usual = getattr(module, "LOG_LEVEL", None)
    if usual is not None:
        from reaper import log  # only for commands that may log: loading structlog takes a while

        log.configure(options.log_level(args.log_level, args.verbose, usual), json=args.json)
    code: int = module.run(args)
    return code


def _system_clock() -> "Clock":
    from reaper.clock import SystemClock

    return SystemClock()


def _unknown(name: str, words: list[str]) -> str:
    if name.startswith("-"):
        command = next((word for word in words if word in COMMANDS), "COMMAND")
        return f"options come after the command: reaper {command} {name} ...; see reaper --help"
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, 1)
    return f"there is no command {name!r}" + (f"; did you mean {close[0]}?" if close else "") + " See reaper --help"


def _tell(error: ReaperError, words: list[str]) -> int:
    from reaper.cli.screen import clean

    said = f"reaper {words[0]}" if words and words[0] in COMMANDS else "reaper"
    problems = error.problems if isinstance(error, ConfigurationError) else (str(error) or type(error).__name__,)
    for problem in problems:
        print(f"{said}: {clean(problem, 2000)}", file=sys.stderr)
    if "--json" in words:
        whole: dict[str, Any] = {"error": "; ".join(problems), "kind": type(error).__name__}
        if isinstance(error, ConfigurationError):
            whole["problems"] = list(problems)
        if isinstance(error, CloudError) and error.code:
            whole["code"] = error.code
        print(json.dumps(whole))
    if isinstance(error, UsageError | ConfigurationError):
        return exits.USAGE
    return exits.REFUSED if isinstance(error, Refused | LeaseLost) else exits.FAILED


def _let_go_of_stdout() -> None:
    """Who read us has gone; the interpreter's own flush at the end must not complain."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file
        sys.stdout = None


if __name__ == "__main__":
    sys.exit(main())
