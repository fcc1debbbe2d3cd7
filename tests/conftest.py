"""Fixtures for all tests. A test that asks for `store_name` runs once on each store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# On a busy machine an example takes as long as it takes: none of that says anything of the code.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")

PLUGINS = ("mission", "outcomes", "signals", "stalls", "servers", "clean", "outside", "garbage", "parsing")
pytest_plugins = [f"tests.plugins.{name}" for name in PLUGINS]


@pytest.fixture(scope="session", autouse=True)
def own_runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Death locks in a directory of this test process: all workers of a user share the default directory."""
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield


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
