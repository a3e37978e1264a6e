"""
What is wrong with a document, in sentences: file, path, what, remedy.

Translates pydantic's errors into ours. A key whose feature is still to come is refused by
name; an unknown key is answered with the one that was probably meant, or the table it belongs in.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reaper.config.values import Unreadable

Path = tuple[str | int, ...]

LATER: dict[Path, str] = {
    ("disks",): "disks are",
    ("defaults", "checkpoint"): "checkpoint hooks are",
    ("policy", "*", "checkpoint"): "checkpoint hooks are",
    ("defaults", "idle", "starved"): "a term for starved machines is",
    ("policy", "*", "idle", "starved"): "a term for starved machines is",
}
"""Keys of the vocabulary whose feature this version does not have."""

MISPLACED: dict[Path, str] = {
    ("defaults", "mode"): "write it in each policy: enforcing is never inherited",
    ("defaults", "when"): "write it in each policy",
    ("schedules",): "write [hours.NAME]",
    ("schedule",): "write [hours.NAME]",
}
"""Keys that exist elsewhere, with the reason why not here."""

_TAGS_OF_UNIONS = ("<table>", "<off>", "[key]")
"""What pydantic adds to a location and no document holds."""

_BARE = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Problem:
    """
    ``concerns``: other paths that were read to find it; if one of them is itself wrong, this one is not told.
    ``meant``: the path that a misspelt or misplaced one stood for, where it can be guessed.
    """

    path: Path
    what: str
    remedy: str
    concerns: tuple[Path, ...] = ()
    meant: Path | None = None


@dataclass(slots=True)
class Origin:
    """Which file wrote which path. ``whole`` is the file or folder that was asked for."""

    whole: str
    files: dict[Path, str] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        """The file of the longest part of the path that was written."""
        for length in range(len(path), 0, -1):
            file = self.files.get(path[:length])
            if file is not None:
                return file
        return self.whole

    def sentence(self, problem: Problem) -> str:
        where = f"{written_path(problem.path)}: " if problem.path else ""
        return f"{self.of(problem.path)}: {where}{problem.what}; {problem.remedy}"


def written_path(path: Path) -> str:
    """As TOML writes it: ``policy.training.idle.for``, ``prices."g5.xlarge"``, ``scope.ids[0]``."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
            continue
        shown = part if _BARE.fullmatch(part) else "(not shown)" if "/" in part or len(part) > 80 else json.dumps(part)
        out += f".{shown}" if out else shown
    return out


def matches(pattern: Path, path: Path) -> bool:
    return len(pattern) == len(path) and all(want in ("*", part) for want, part in zip(pattern, path, strict=True))


def overlap(one: Path, other: Path) -> bool:
    """Whether one path is the other or lies within it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def unusual(tree: object, path: Path = ()) -> Iterator[Problem]:
    """What a document can hold in one of its two notations and means nothing in either: null, nan, keys of no text."""
    if tree is None:
        yield Problem(path, "null is not a value", "leave the key out")
    elif isinstance(tree, dict):
        for key, value in tree.items():
            if isinstance(key, str):
                yield from unusual(value, (*path, key))
            else:
                yield Problem((*path, str(key)), "the key is not text", "write it in quotes")
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield from unusual(value, (*path, place))


def translate(errors: Iterable[Mapping[str, Any]], tree: object, schema: Mapping[str, Any]) -> list[Problem]:
    """pydantic's error rows as problems. ``tree`` is the document, ``schema`` its JSON Schema."""
    problems = []
    for row in errors:
        path = tuple(part for part in row["loc"] if part not in _TAGS_OF_UNIONS)
        problems.append(_problem(row, path, tree, schema))
    return problems


def _problem(row: Mapping[str, Any], path: Path, tree: object, schema: Mapping[str, Any]) -> Problem:
    kind = row["type"]
    reason = row.get("ctx", {}).get("error")
    if isinstance(reason, Unreadable):
        return Problem(path, reason.what, reason.remedy)
    match kind:
        case "extra_forbidden":
            return _unknown_key(path, tree, schema)
        case "missing":
            return Problem(path, "is missing", _how_to_write(path))
        case "model_type" | "dict_type" | "model_attributes_type":
            known = ", ".join(_keys_of(schema, path))
            return Problem(path, "is not a table", f"write a table; its keys are {known}" if known else "write it as { key = value }")
        case "list_type":
            return Problem(path, "is not a list", 'write it in brackets, as ["one"], even when there is only one')
        case "too_short":
            return Problem(path, "is empty and so selects nothing", "write at least one entry or leave the key out")
    return Problem(path, f"is not understood ({kind})", "see `reaper check --schema`")


def _how_to_write(path: Path) -> str:
    if path == ("schema",):
        return "write schema = 1 at the top"
    if path[0] == "protect":
        return 'say why it is protected, as reason = "pre-training run"'
    return f"add the key {path[-1]}"


def _unknown_key(path: Path, tree: object, schema: Mapping[str, Any]) -> Problem:
    for pattern, feature in LATER.items():
        if matches(pattern, path):
            thing = "table" if isinstance(_at(tree, path), dict) else "key"
            return Problem(path, f"{feature} not available in this version", f"remove the {thing}")
    for pattern, remedy in MISPLACED.items():
        if matches(pattern, path):
            return Problem(path, "does not belong here", remedy)
    key, known = str(path[-1]), _keys_of(schema, path[:-1])
    close = closest(key, known)
    if close is not None:
        return Problem(path, "unknown key", f"did you mean {close}?", meant=(*path[:-1], close))
    homes = [home for home in _homes(schema, key) if home != path[:-1]]
    if homes:
        near = max(homes, key=lambda home: _common(home, path))
        meant = (*(mine if part == "*" else part for part, mine in zip(near, (*path, *near), strict=False)), key)
        where = written_path(tuple("NAME" if part == "*" else part for part in near)) or "the top"
        return Problem(path, "unknown key here", f"it belongs in {where}", meant=meant)
    return Problem(path, "unknown key", f"remove it; known here: {', '.join(known)}")


def closest(key: str, known: Iterable[str]) -> str | None:
    """The known key that was probably meant; None: none is near."""
    found = difflib.get_close_matches(key.lower().replace("-", "_"), list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def _at(tree: object, path: Path) -> object:
    for part in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(part)
    return tree


def _tables(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The table variants of a schema node."""
    if "$ref" in node:
        yield from _tables(schema, schema["$defs"][node["$ref"].rsplit("/", 1)[1]])
    for variant in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _tables(schema, variant)
    if node.get("type") == "object":
        yield node


def _keys_of(schema: Mapping[str, Any], path: Path) -> list[str]:
    """The keys that the table at a path may have; empty where they are free or it is no table."""
    nodes: list[Mapping[str, Any]] = list(_tables(schema, schema))
    for part in path:
        below: list[Mapping[str, Any]] = []
        for node in nodes:
            children = [node["properties"][part]] if part in node.get("properties", {}) else _of_any_name(node)
            below += [table for child in children for table in _tables(schema, child)]
        nodes = below
    return sorted(key for node in nodes for key in node.get("properties", {}))


def _homes(schema: Mapping[str, Any], key: str, path: Path = (), node: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """Every table of the vocabulary that has this key; "*" stands for a name."""
    for table in _tables(schema, schema if node is None else node):
        properties = table.get("properties", {})
        if key in properties:
            yield path
        for below, child in properties.items():
            yield from _homes(schema, key, (*path, below), child)
        for child in _of_any_name(table):
            yield from _homes(schema, key, (*path, "*"), child)


def _of_any_name(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the entries of a table look like whose keys the operator chooses."""
    free = table.get("additionalProperties")
    return [*table.get("patternProperties", {}).values(), *([free] if isinstance(free, dict) else [])]


def _common(home: Path, path: Path) -> int:
    """How many parts two paths begin alike."""
    count = 0
    for one, other in zip(home, path, strict=False):
        if one not in ("*", other):
            break
        count += 1
    return count
