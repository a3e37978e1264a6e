"""Disks, what else lies about, and where both were looked for."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    for table, key in (("shelves", "place"), ("disks", "resource"), ("leftovers", "resource")):
        op.create_table(table, sa.Column(key, _KEY, primary_key=True), sa.Column("value", sa.Text, nullable=False))
