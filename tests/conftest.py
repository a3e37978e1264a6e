"""What tests of several folders share: one PostgreSQL for a whole run, made when the first test asks for it."""

from collections.abc import Iterator

import pytest

from tests import postgres


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    with postgres.made() as made:
        yield postgres.with_template(made)


@pytest.fixture
def database(cluster: postgres.Cluster) -> Iterator[str]:
    """The URL of an empty store."""
    name = cluster.database("migrated")
    yield cluster.url(name)
    cluster.drop(name)
