"""Alembic's folder: the revisions that make a store and bring an older one up. store/migrate.py runs them."""
