"""
Files to one tree of tables, with the file that wrote each key.

An empty file, a folder without files and a file that changed under our eyes are problems:
nothing that cannot be read whole ever counts as defaults.
"""

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from reaper.config.problems import Origin, written_path

LARGEST_BYTES = 4 * 1024 * 1024
"""A configuration is written by hand; more than this is another file."""

SUFFIXES = (".toml", ".json")


class _Refused(Exception):
    """One file that cannot be read: what, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(what)


def read(path: Path) -> tuple[dict[str, Any], Origin, list[str], bool]:
    """
    The merged tree, where its keys came from, the problems met as sentences, and whether every file was read.

    Where one was not, what the others seem to lack may stand in it.
    """
    origin = Origin(str(path))
    tree: dict[str, Any] = {}
    files, sentences = _files(path)
    whole = not sentences
    for file in files:
        try:
            part = _parse(file)
        except _Refused as refused:
            sentences.append(f"{file}: {refused.what}; {refused.remedy}")
            whole = False
            continue
        sentences.extend(_merge(tree, part, str(file), origin, ()))
    return tree, origin, sentences, whole


def _files(path: Path) -> tuple[list[Path], list[str]]:
    """The files to read, in order of their names, and what in the folder would silently be left out."""
    try:
        if not path.is_dir():
            return [path], []
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        return [], [f"{path}: cannot be read ({error.strerror}); check that it exists and who may read it"]
    files = [entry for entry in entries if entry.suffix in SUFFIXES and not entry.is_dir()]
    sentences = []
    for entry in entries:
        if entry.suffix.lower() in (".yaml", ".yml") or (entry.suffix not in SUFFIXES and entry.suffix.lower() in SUFFIXES):
            sentences.append(f"{entry}: would be left out; name it .toml or .json and write it so, or move it out of the folder")
        elif entry.is_dir() and any(below.suffix in SUFFIXES for below in entry.iterdir()):
            sentences.append(f"{entry}: folders inside are not read; move its files up or the folder out")
    if not files:
        sentences.append(f"{path}: holds no *.toml or *.json; an empty folder is never defaults, write a configuration or name no path")
    return files, sentences


def _parse(file: Path) -> dict[str, Any]:
    if file.suffix not in SUFFIXES:
        raise _Refused("is neither .toml nor .json", "name it by what it is")
    content = _text(file)
    try:
        tree = _json(content) if file.suffix == ".json" else _toml(content)
    except RecursionError:
        raise _Refused("is nested too deeply", "write it flat") from None
    if not isinstance(tree, dict):
        raise _Refused("is not a table at the top", 'begin with { "schema": 1 }')
    if not tree:
        raise _Refused("says nothing", "an empty file is never defaults: write schema = 1 and what you want, or remove the file")
    return tree


def _text(file: Path) -> str:
    """The whole file, or a refusal. Looks twice, so that a file which is just being written is not taken by half."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe must not wait for its writer
        with os.fdopen(handle, "rb") as stream:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise _Refused("is not a file", "name a file or a folder")
            content = stream.read(LARGEST_BYTES + 1)
            after = os.stat(file)
    except OSError as error:
        raise _Refused(f"cannot be read ({error.strerror})", "check that it exists and who may read it") from None
    if len(content) > LARGEST_BYTES:
        raise _Refused("is larger than 4 MiB", "name the right file")
    seen = (before.st_ino, before.st_size, before.st_mtime_ns)
    if seen != (after.st_ino, after.st_size, after.st_mtime_ns) or len(content) != after.st_size:
        raise _Refused("changed while it was read", "try again once it is written; move a finished file into place")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Refused(f"is not UTF-8 (line {line})", "save it as UTF-8") from None


def _toml(content: str) -> dict[str, Any]:
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        words = str(error)
        twice = "Cannot overwrite" in words or "Cannot declare" in words or "Duplicate" in words
        what = "a key or table is written twice" if twice else "is not TOML"
        raise _Refused(f"{what}: {words}", "correct that line; half a file is never used") from None
    except ValueError:  # a number of thousands of digits
        raise _Refused("holds a number that is too long", "write a shorter one") from None


def _json(content: str) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in items:
            if key in table:
                raise _Refused(f"{written_path((key,))}: the key is written twice in one table", "write it once")
            table[key] = value
        return table

    def constant(word: str) -> float:
        raise _Refused(f"{word} is not a number", "write a number or leave the key out")

    try:
        return json.loads(content, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise _Refused(f"is not JSON: {error.msg} (at line {error.lineno}, column {error.colno})", "correct that line") from None
    except ValueError:  # a number of thousands of digits
        raise _Refused("holds a number that is too long", "write a shorter one") from None


def _merge(tree: dict[str, Any], part: dict[str, Any], file: str, origin: Origin, path: tuple[str | int, ...]) -> list[str]:
    """Tables merge; anything else may be written in one file only."""
    sentences: list[str] = []
    for key, value in part.items():
        here = (*path, key)
        if key not in tree:
            tree[key] = {} if isinstance(value, dict) else value
            origin.files[here] = file
            if isinstance(value, dict):
                sentences += _merge(tree[key], value, file, origin, here)
        elif isinstance(value, dict) and isinstance(tree[key], dict):
            sentences += _merge(tree[key], value, file, origin, here)
        else:
            sentences.append(f"{file}: {written_path(here)}: is also written in {origin.files[here]}; write it in one file only")
    return sentences
