"""
The agent's own tests under the other Pythons of this machine: hosts run it on whatever they have, from 3.9 on.

A Python that lacks the packages gets a virtual environment of its own, kept in the user's cache for the next run, if they
can be had within a minute. What is not there is skipped, by name. The Python that runs this runs those tests anyway.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.9", "3.11", "3.13")
PACKAGES = ("nvidia-ml-py", "psutil", "structlog", "tomli", "pytest", "hypothesis", "nvidia-nvml-dev")
NEEDED = "import nvidia, psutil, pynvml, structlog, pytest, hypothesis, sys; sys.version_info >= (3, 11) or __import__('tomli')"
INSTALL_WITHIN_S = 60
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def python(version: str) -> str | None:
    """A Python of this version that starts: one named on the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
    return next((one for one in found if one is not None and says(one, "import sys; print('%d.%d' % sys.version_info[:2])") == version), None)


def says(interpreter: str, code: str) -> str | None:
    """What it prints; None when it fails."""
    try:
        done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def kept(interpreter: str) -> Path:
    """Where the environment for it lives between runs: another one for another interpreter or set of packages."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "idle-reaper-tests" / hashlib.sha256(" ".join((interpreter, *PACKAGES)).encode()).hexdigest()[:16]


def equipped(interpreter: str) -> str | None:
    """The interpreter, or one of an environment with the packages; None when they cannot be had."""
    if says(interpreter, NEEDED) is not None:
        return interpreter
    folder = kept(interpreter)
    made = folder / "bin" / "python"
    if made.exists() and says(str(made), NEEDED) is not None:
        return str(made)
    try:
        subprocess.run([interpreter, "-m", "venv", "--clear", str(folder)], capture_output=True, check=True, timeout=INSTALL_WITHIN_S)
        line = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(line, capture_output=True, check=True, timeout=INSTALL_WITHIN_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return str(made) if says(str(made), NEEDED) is not None else None


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != OWN])
def test_agents_tests_pass_on(version: str, tmp_path: Path) -> None:
    base = python(version)
    if base is None:
        pytest.skip(f"Python {version} is not here")
    interpreter = equipped(base)
    if interpreter is None:
        pytest.skip(f"Python {version} is not here with what the tests need, and it cannot be had")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON", "REAPER_AGENT_"))}
    line = [interpreter, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "run"), "tests/agent", "tests/wire"]
    done = subprocess.run(line, cwd=ROOT, env={**env, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout


def test_a_version_that_nobody_has_is_not_found() -> None:
    assert python("3.2") is None
