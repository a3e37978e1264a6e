"""The first schema. Files made before there were revisions have it as well; they are only told so."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
_COUNTED = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_SQLITE = {
    "audit_no_update": "BEFORE UPDATE ON audit",
    "audit_no_delete": "BEFORE DELETE ON audit",
    "audit_no_replace": "BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq)",
}
_POSTGRESQL = (
    "CREATE FUNCTION reaper_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the audit is append-only'; END $$",
    "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION reaper_audit_is_append_only()",
    "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION reaper_audit_is_append_only()",
)


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, _KEY, primary_key=True)


def _value() -> sa.Column[str]:
    return sa.Column("value", sa.Text, nullable=False)


def _moment(name: str, *, optional: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=optional)


def upgrade() -> None:
    op.create_table("reaper_schema", sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
    op.create_table(
        "observations", _key("resource"), _key("boot_id"), sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        _moment("boot_received_at"), _moment("ended_at"), sa.Column("verified", sa.Boolean, nullable=False), _value(),
    )  # fmt: skip
    op.create_index("observations_by_end", "observations", ["ended_at"])
    op.create_table("voices", _key("resource"), _value())
    op.create_table("tokens", _key("id"), _value())
    op.create_table("listings", _key("place"), _value())
    op.create_table("ledgers", _key("resource"), _value())
    op.create_table("seen_protections", _key("resource"), _key("name"), _value())
    op.create_table("marks", _key("resource"), _key("action"), _value())
    op.create_table("snoozes", _key("id"), _moment("until"), _value())
    op.create_index("snoozes_by_end", "snoozes", ["until"])
    op.create_table(
        "plans", sa.Column("seq", _COUNTED, primary_key=True), sa.Column("id", _KEY, nullable=False, unique=True), _value(), sqlite_autoincrement=True
    )
    op.create_table("approvals", _key("id"), _moment("at"), _moment("done_at", optional=True), _value())
    op.create_table(
        "lease", sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("holder", _KEY, nullable=False), _moment("expires_at"),
    )  # fmt: skip
    op.create_table(
        "attempts", _key("id"), sa.Column("resource", _KEY, nullable=False), sa.Column("action", _KEY, nullable=False), _moment("intent_at"),
        sa.Column("outcome", _KEY), _value(),
    )  # fmt: skip
    for column in ("action", "resource", "outcome"):
        op.create_index(f"attempts_by_{column}", "attempts", [column, "intent_at"])
    op.create_table(
        "audit", sa.Column("seq", _COUNTED, primary_key=True), _moment("at"), sa.Column("resource", _KEY), _value(), sqlite_autoincrement=True
    )
    op.create_index("audit_by_moment", "audit", ["at"])
    op.create_index("audit_by_resource", "audit", ["resource", "seq"])
    op.create_table("facts", _key("key"), _value())
    if op.get_bind().dialect.name == "postgresql":
        for statement in _POSTGRESQL:
            op.execute(statement)
    else:
        for name, when in _SQLITE.items():
            op.execute(f"CREATE TRIGGER {name} {when} BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END")
