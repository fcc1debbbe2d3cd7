"""Fixtures for all tests. A test that asks for `store_name` runs once on each store."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

# On a busy machine an example takes as long as it takes: none of that says anything of the code.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")

PLUGINS = ("mission", "outcomes", "signals", "stalls", "servers", "clean", "outside", "garbage")
pytest_plugins = [f"tests.plugins.{name}" for name in PLUGINS]


@pytest.fixture
def store_name(request: pytest.FixtureRequest) -> str:
    """sqlite, postgres or redis."""
    return str(request.param)


@pytest.fixture
def fresh_sqlite_url(sqlite_url: str) -> str:
    """A file is new by itself."""
    return sqlite_url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite file of this test alone."""
    return f"sqlite:///{tmp_path / 'mainspring.db'}"


@pytest.fixture
def store_url(store_name: str, request: pytest.FixtureRequest) -> str:
    """The URL of the store under test, with nothing in it; only its own server is started."""
    return str(request.getfixturevalue(f"fresh_{store_name}_url"))
