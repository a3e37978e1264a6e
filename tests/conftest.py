"""
What tests of several folders share: one PostgreSQL for a whole run, made when the first test asks for it.

The agent's tests run on Pythons that have none of what the store needs, so nothing of it is imported before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests import postgres


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
