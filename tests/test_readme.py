"""Nothing in the README is untrue: its files are there, its configuration loads, its commands exist."""

import re
import tomllib
from pathlib import Path

import pytest

from reaper.cli.main import COMMANDS
from reaper.config import load, parse, remarks

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "reaper/README.md", "agent/README.md", "tests/README.md")
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]

    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_its_configuration_loads() -> None:
    document = tomllib.loads(blocks("toml")[0])

    configuration = parse(document, "README.md")

    assert [policy.name for policy in configuration.policies] == ["exploration", "training"]


def test_the_commented_configuration_beside_it_loads_without_a_remark() -> None:
    assert remarks(load(ROOT / "deploy" / "config" / "reaper.toml")) == ()


def test_every_command_is_in_its_table_and_no_other() -> None:
    told = set(re.findall(r"^\| `reaper (\w+)", README, re.M))

    assert told == set(COMMANDS)


def test_the_two_commands_stand_there_as_a_newcomer_copies_them() -> None:
    assert "python3 -m venv .venv && .venv/bin/pip install -q -e '.[demo]' && .venv/bin/reaper demo\n" in README
    assert "python3 -m venv .venv && .venv/bin/pip install -q -e '.[demo,test]' && .venv/bin/python -m pytest\n" in README
