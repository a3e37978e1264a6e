"""
From a tree of tables to a Configuration, or to every problem it has at once.

What is wrong is cut out and the rest checked again, so that a misspelt key in one policy does not hide that another
has no scope. A rule that read something which was cut out keeps silent.
"""

import copy
from typing import Any

from pydantic import ValidationError

from reaper.config import convert, rules
from reaper.config.document import Document
from reaper.config.problems import Origin, Path, Problem, overlap, translate, unusual
from reaper.model.policy import Configuration

ROUNDS = 20
"""Cutting goes upward in the tree, which is not deep; more rounds than this would be a mistake of ours."""


def checked(tree: dict[str, Any], origin: Origin, whole: bool) -> tuple[Configuration | None, list[str]]:
    """
    The configuration (no digests yet), or None and the sentences of all that is wrong.

    ``whole`` False: a file could not be read, so nothing is called missing that may stand in it.
    """
    rest = copy.deepcopy(tree)
    problems = list(unusual(rest))
    cut: list[Path] = [] if whole else [()]
    for problem in problems:
        cut.append(problem.path)
        _cut(rest, problem.path)
    document, found = _typed(rest, tree, cut)
    problems += found
    channels, wrong = rules.channels({} if document is None else document.channels)
    if document is not None:
        told = [*rules.check(document), *wrong]
        problems += [p for p in told if not any(overlap(concern, gone) for concern in (p.path, *p.concerns) for gone in cut)]
    if problems:
        return None, sorted({origin.sentence(problem) for problem in problems})
    if document is None or not whole:
        return None, []
    return convert.configuration(document, channels, origin.whole), []


def json_schema() -> dict[str, Any]:
    """Of the document. A key may be absent and never null, which pydantic's own rendering of None would allow."""
    tight = _without_null(Document.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **tight, "title": "Idle Reaper configuration"}


def _typed(rest: dict[str, Any], tree: dict[str, Any], cut: list[Path]) -> tuple[Document | None, list[Problem]]:
    """The document without what is wrong in it, and what that is. ``rest`` is cut down, ``cut`` grows."""
    problems: list[Problem] = []
    vocabulary: dict[str, Any] = {}
    for _ in range(ROUNDS):
        try:
            return Document.model_validate(rest), problems
        except ValidationError as refused:
            rows = refused.errors(include_url=False, include_input=False)
        before = list(cut)
        vocabulary = vocabulary or json_schema()
        for row, problem in zip(rows, translate(rows, tree, vocabulary), strict=True):
            missing = row["type"] == "missing"
            if not any(overlap(gone, problem.path) for gone in before if gone or missing):
                problems.append(problem)
            gone = problem.path[:-1] if missing and len(problem.path) > 1 else problem.path
            cut += [gone] if problem.meant is None else [gone, problem.meant]
            _cut(rest, gone)
    return None, problems


def _cut(rest: dict[str, Any], path: Path) -> None:
    """Take one place out; of a list the whole, because what remains of it is another list."""
    if path == ("schema",):
        rest["schema"] = 1
        return
    node: Any = rest
    for part in path[:-1]:
        below = node.get(part) if isinstance(node, dict) else None
        if not isinstance(below, dict):
            break
        node = below
    else:
        node.pop(path[-1], None)
        return
    node.pop(part, None)


def _without_null(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {key: _without_null(value) for key, value in node.items() if not (key == "default" and value is None)}
    if "patternProperties" in out:
        out["additionalProperties"] = False  # a name that does not fit is refused too
    variants = out.get("anyOf")
    if isinstance(variants, list):
        kept = [variant for variant in variants if variant != {"type": "null"}]
        if len(kept) == 1 and len(kept) < len(variants):
            del out["anyOf"]
            out = {**kept[0], **out}
        else:
            out["anyOf"] = kept
    return out
