"""Fixtures for all tests. A test that asks for `store_name` runs once on each store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mission import STORES

pytest_plugins = ["tests.plugins.mission", "tests.plugins.servers"]


@pytest.fixture(params=STORES)
def store_name(request: pytest.FixtureRequest) -> str:
    """sqlite, postgres or redis."""
    return str(request.param)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite file of this test alone."""
    return f"sqlite:///{tmp_path / 'mainspring.db'}"


@pytest.fixture
def store_url(store_name: str, request: pytest.FixtureRequest) -> str:
    """The URL of the store under test; only its own server is started."""
    return str(request.getfixturevalue(f"{store_name}_url"))
