"""The floors of the house are contracts, and a contract that cannot break proves nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("lint-imports (import-linter) is not installed beside this Python")
    return subprocess.run([str(tool), "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


def test_every_floor_keeps_to_its_contract() -> None:
    result = lint_imports(ROOT)

    assert result.returncode == 0, result.stdout


TRESPASSES = [
    ("reaper/model/snooze.py", "import reaper.decide.engine\n"),
    ("reaper/decide/engine.py", "import reaper.clock\n"),
    ("reaper/decide/engine.py", "import structlog\n"),
    ("reaper/service/cycle.py", "import reaper.store\n"),
    ("reaper/service/cycle.py", "import boto3\n"),
    ("reaper/service/cycle.py", "import google.cloud.compute_v1\n"),
    ("reaper/demo/play.py", "import google.auth\n"),
    ("reaper/store/__init__.py", "import reaper.notify\n"),
    ("reaper/api/__init__.py", "import agent.report\n"),
    ("agent/report.py", "import reaper.errors\n"),
]


@pytest.mark.parametrize(("file", "line"), TRESPASSES, ids=[f"{f} {line.strip()}" for f, line in TRESPASSES])
def test_trespass_on_another_floor_breaks_the_contract(tmp_path: Path, file: str, line: str) -> None:
    import shutil

    for name in ("reaper", "agent"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / file
    target.write_text(target.read_text() + "\n" + line)

    result = lint_imports(tmp_path)

    assert result.returncode != 0
    assert "BROKEN" in result.stdout
