"""PostgreSQL (14 and later) by psycopg 3."""

from mainspring.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
