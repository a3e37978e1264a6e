"""
The tables: columns are what queries ask for, everything else is one JSON value beside them.

Moments are whole microseconds since 1970 in UTC, so that they compare and sort in every database and none of them has
to know about zones. A resource or place is its text form. No table is ever rewritten by hand: a change of the columns
raises SCHEMA and comes with a revision in migrations/ that brings an older store up.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, Table, Text
from sqlalchemy.dialects import postgresql

SCHEMA = 2

metadata = MetaData()

# SQLite counts up by itself only in a column that is declared INTEGER.
_COUNTED = BigInteger().with_variant(Integer, "sqlite")

# What is looked for and sorted compares by code point, as SQLite does it: a locale's own order differs between servers, and
# changes under an index when the system's library is updated.
_KEY = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def _text_key(name: str) -> Column[str]:
    return Column(name, _KEY, primary_key=True)


def _value() -> Column[str]:
    return Column("value", Text, nullable=False)


def _moment(name: str, *, optional: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=optional)


schema = Table("reaper_schema", metadata, Column("version", Integer, primary_key=True, autoincrement=False))

observations = Table(
    "observations",
    metadata,
    _text_key("resource"),
    _text_key("boot_id"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    # Receipt of the boot's first window here, the same in all its rows: the order of boots without a look at all of them.
    _moment("boot_received_at"),
    _moment("ended_at"),
    Column("verified", Boolean, nullable=False),  # wins over the value's own: distrust() changes this alone
    _value(),
)
Index("observations_by_end", observations.c.ended_at)

voices = Table("voices", metadata, _text_key("resource"), _value())
tokens = Table("tokens", metadata, _text_key("id"), _value())
listings = Table("listings", metadata, _text_key("place"), _value())
ledgers = Table("ledgers", metadata, _text_key("resource"), _value())
seen_protections = Table("seen_protections", metadata, _text_key("resource"), _text_key("name"), _value())
shelves = Table("shelves", metadata, _text_key("place"), _value())
disks = Table("disks", metadata, _text_key("resource"), _value())
leftovers = Table("leftovers", metadata, _text_key("resource"), _value())
marks = Table("marks", metadata, _text_key("resource"), _text_key("action"), _value())

snoozes = Table("snoozes", metadata, _text_key("id"), _moment("until"), _value())
Index("snoozes_by_end", snoozes.c.until)

# The order of saving is the order of plans: a clock that stepped back must not hide the plan made after it.
plans = Table(
    "plans",
    metadata,
    Column("seq", _COUNTED, primary_key=True),
    Column("id", _KEY, nullable=False, unique=True),
    _value(),
    sqlite_autoincrement=True,
)

approvals = Table(
    "approvals", metadata, _text_key("id"), _moment("at"), _moment("done_at", optional=True), _value()
)

# One row (id 1). It stays when the lease is released, so the epoch never repeats.
lease = Table(
    "lease",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", _KEY, nullable=False),
    _moment("expires_at"),
)

attempts = Table(
    "attempts",
    metadata,
    _text_key("id"),
    Column("resource", _KEY, nullable=False),
    Column("action", _KEY, nullable=False),
    _moment("intent_at"),
    Column("outcome", _KEY),
    _value(),
)
Index("attempts_by_action", attempts.c.action, attempts.c.intent_at)
Index("attempts_by_resource", attempts.c.resource, attempts.c.intent_at)
Index("attempts_by_outcome", attempts.c.outcome, attempts.c.intent_at)

audit = Table(
    "audit",
    metadata,
    Column("seq", _COUNTED, primary_key=True),
    _moment("at"),
    Column("resource", _KEY),
    _value(),
    sqlite_autoincrement=True,
)
Index("audit_by_moment", audit.c.at)
Index("audit_by_resource", audit.c.resource, audit.c.seq)

facts = Table("facts", metadata, _text_key("key"), _value())
