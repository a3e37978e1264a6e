"""The shipped configuration is whole: what it says is accepted, what it leaves out is said, and so is what `reaper undo` needs."""

import re
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from reaper import config
from reaper.config.document import Document
from reaper.model.policy import Mode

EXAMPLE = Path(__file__).parents[2] / "deploy" / "config" / "reaper.toml"
LEFT_OUT = re.compile(r"^# (?=\[[\w.\-]+\]|[a-z_]+ = )", re.MULTILINE)


def tables(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    if model in seen:
        return
    seen.add(model)
    yield model
    for field in model.model_fields.values():
        for part in parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from tables(part, seen)


def parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        if not isinstance(part, types.EllipsisType):
            yield from parts(part)


KEYS = sorted({(t.__name__, f.alias or n) for t in tables(Document, set()) for n, f in t.model_fields.items()})


@pytest.mark.parametrize(("table", "key"), KEYS, ids=lambda word: word)
def test_every_key_of_the_vocabulary_is_shown(table: str, key: str) -> None:
    """Also one that stays at its default: who reads the file has read what there is."""
    written = re.compile(rf'(^|[\s{{,#\[.]){re.escape(key)}("?\]|\.| = )', re.MULTILINE)

    assert written.search(EXAMPLE.read_text()), f"{key} of {table} is nowhere in {EXAMPLE.name}"


def test_it_is_accepted_as_it_stands_and_observes() -> None:
    assert config.load(EXAMPLE).mode is Mode.OBSERVE


def test_what_it_leaves_out_is_accepted_as_well() -> None:
    """Every line that shows a default, taken in: an example that is refused teaches nothing."""
    text, count = LEFT_OUT.subn("", EXAMPLE.read_text())
    document = tomllib.loads(text)

    made = config.parse(document, "all of it")

    assert count > 20
    assert made.aws is not None
    assert made.aws.accounts[1].owner == "ml-eval@example.com"
    assert made.aws.accounts[1].external_id == "idle-reaper-91c0"
    assert made.budgets.deletes.per_day == 5
