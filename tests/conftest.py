"""
What tests of several folders share: one PostgreSQL for a whole run, made when the first test asks for it.

The agent's tests run on Pythons that have none of what the store needs, so nothing of it is imported before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests import postgres


LONGEST = ("simulation", "agent_versions", "story", "demo", "scenarios")
"""Folders whose files take minutes. On several cores they begin first, or the last of them runs alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        here = len(Path(__file__).parts) - 1
        places = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path.parts[here], len(places)))


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    from tests import postgres

    with postgres.made() as made:
        yield postgres.with_template(made)


@pytest.fixture
def database(cluster: postgres.Cluster) -> Iterator[str]:
    """The URL of an empty store."""
    name = cluster.database("migrated")
    yield cluster.url(name)
    cluster.drop(name)
