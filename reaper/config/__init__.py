"""
The operator's configuration: TOML or the same as JSON, one file or a folder, to the model's `Configuration`.

Every problem is told at once, each with file, path and remedy; a document with one problem is refused whole.
pydantic is imported only when something is read.
"""

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from reaper.clock import SystemClock
from reaper.config.digest import sealed
from reaper.errors import ConfigurationError, UsageError
from reaper.model.policy import AwsCloud, Configuration, Mode, Policy, Selector

ENVIRONMENT = "REAPER_CONFIG"
FOLDER = Path("/etc/idle-reaper")
BUILT_IN = "built in"

__all__ = ["BUILT_IN", "ENVIRONMENT", "FOLDER", "built_in", "find", "load", "parse", "remarks", "schema"]


def find(explicit: str | None, environ: Mapping[str, str] = os.environ, folder: Path = FOLDER) -> Path | None:
    """
    Where the configuration is: what was asked for, else $REAPER_CONFIG, else /etc/idle-reaper if it is there.

    None: nowhere, and `built_in` is what to use. A path that was named is returned even if nothing is there,
    so that `load` refuses it: a vanished file is never defaults. Raises UsageError for an empty path.
    """
    if explicit == "":
        raise UsageError("the path of the configuration is empty; name a file or folder, or leave it out")
    named = explicit if explicit is not None else environ.get(ENVIRONMENT) or None
    if named is not None:
        return Path(named)
    return folder if os.path.lexists(folder) else None


def load(path: Path) -> Configuration:
    """Read one file, or the *.toml and *.json of a folder. Raises ConfigurationError with every problem."""
    from reaper.config.reading import read

    tree, origin, sentences, whole = read(path)
    return _checked(tree, origin, sentences, whole)


def parse(document: Mapping[str, Any], source: str = "document") -> Configuration:
    """The same checks on a tree of tables that is already read. Raises ConfigurationError with every problem."""
    from reaper.config.problems import Origin

    if not document:
        raise ConfigurationError((f"{source}: says nothing; an empty document is never defaults: write schema = 1 and what you want",))
    return _checked(dict(document), Origin(source), [], whole=True)


def built_in() -> Configuration:
    """Without any file: observe everything the credentials show, report, and never touch anything."""
    return sealed(
        Configuration(
            name="default",
            mode=Mode.OBSERVE,
            policies=(Policy(name="default", when=Selector()),),
            aws=AwsCloud(),
            source=BUILT_IN,
        )
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    from reaper.config.checking import json_schema

    return json_schema()


def remarks(configuration: Configuration, now: datetime | None = None) -> tuple[str, ...]:
    """What `check` calls out without refusing. ``now`` tells which protections ended; None: the wall clock."""
    from reaper.config import advice

    return advice.remarks(configuration, SystemClock().now() if now is None else now)


def _checked(tree: dict[str, Any], origin: Any, sentences: list[str], whole: bool) -> Configuration:
    from reaper.config.checking import checked

    configuration, found = checked(tree, origin, whole)
    if configuration is None or sentences:
        raise ConfigurationError((*sentences, *found))
    return sealed(configuration)
