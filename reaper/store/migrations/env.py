"""Run by Alembic. The transaction is the caller's: all revisions take effect together or none does."""

from alembic import context

from reaper.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a column by making the table anew
)
context.run_migrations()
