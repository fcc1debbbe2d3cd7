"""Rows that unique keys leave behind."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from mainspring.stores.sqlite import SqliteStore
from tests.stores.used_keys import use_keys


async def test_no_row_of_a_unique_key_is_left(store: SqliteStore, path: Path) -> None:
    await use_keys(store)
    with closing(sqlite3.connect(path)) as connection:
        for table in ("unique_keys", "edges", "marks", "follow_ups", "jobs", "finished", "dead"):
            assert connection.execute(f"select count(*) from mainspring_{table}").fetchall() == [(0,)], table
