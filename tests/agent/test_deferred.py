"""Modules left unloaded until somebody uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.deferred import deferred

ROOT = Path(__file__).resolve().parents[2]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


def test_logging_loads_no_asyncio() -> None:
    code = "import sys; from agent.log import configured; configured().info('x'); print(sorted({'asyncio', 'uuid'} & set(sys.modules)))"

    assert run(code) == "[]\n"


def test_what_was_deferred_works_when_it_is_used_after_all() -> None:
    code = (
        "import sys; from agent.log import configured; log = configured(sys.stdout)\n"
        "import asyncio; asyncio.run(log.ainfo('x', y=1)); print(asyncio.__spec__.name)"
    )

    assert run(code).split("event=")[1].split() == ["'x'", "y=1", "asyncio"]


def test_stand_in_loads_the_real_one_even_while_it_lies_there() -> None:
    code = (
        "import sys; from agent.deferred import deferred\n"
        "with deferred('wave'):\n"
        "    import wave; print('chunk' in sys.modules, wave.open.__module__, sys.modules['wave'] is wave)\n"
        "import wave as again; print(again.__file__ is not None, sys.modules['wave'] is again)"
    )

    assert run(code).splitlines() == ["False wave False", "True True"]


def test_module_that_is_loaded_already_is_left_as_it_is() -> None:
    with deferred("json"):
        import json as within

    assert within.loads("1") == 1
    assert sys.modules["json"] is within


def test_one_that_does_not_exist_fails_where_it_is_used() -> None:
    with deferred("no_such_module"):
        import no_such_module  # type: ignore[import-not-found]

    with pytest.raises(ModuleNotFoundError):
        no_such_module.anything  # noqa: B018
    assert "no_such_module" not in sys.modules
