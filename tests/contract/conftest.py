"""The contract suite, whole, on our three stores: the same tests, no skips."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.common.clock import Clock
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.testing.contract.fixtures import *  # noqa: F403  # fixtures are found by name
from mainspring.testing.contract.fixtures import MakeStore
from mainspring.testing.contract.model.machine import WALK
from tests.plugins.clean import CleanSchemas
from tests.timing import patience

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before the rows are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever of the contract runs on a store is part of the row about it."""
    for item in items:
        if item.path.is_relative_to(HERE) and "make_store" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.row("E1"))


@pytest.fixture
def make_store(store_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """A client of the test's database; only the server that is needed is started.

    The deadline of a call allows for a stall of the machine: the contract is about answers, not about seconds.
    """
    durability = "full" if store_name == "redis" else "normal"  # Redis keeps what its server is set to keep
    url = None if store_name == "sqlite" else request.getfixturevalue(f"{store_name}_url")
    file_for = SqliteFiles(tmp_path)
    place = request.getfixturevalue("schema_for") if store_name == "postgres" else str

    def make(*, namespace: str, clock: Clock) -> Store:
        at = url or f"sqlite:///{file_for(namespace)}"
        return connect(at, namespace=place(namespace), durability=durability, clock=clock, deadline=patience(30))

    return make


class SqliteFiles:
    """The SQLite file of a namespace: one file for the namespaces of a test, and a new file for each random walk.

    Each namespace has its own tables. SQLite reads the schema of the whole file again for every table and column that
    a migration adds, so in one file every walk would open more slowly than the walk before it: 0.02 s of CPU time for
    the first walk, 2 s for the hundredth.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._walk: Path | None = None

    def __call__(self, namespace: str) -> Path:
        if not namespace.startswith(WALK):
            return self._folder / "contract.db"
        folder = self._folder / namespace
        if folder != self._walk:
            if self._walk is not None:
                shutil.rmtree(self._walk)  # its clients are closed, and its files take 4 MiB and more
            folder.mkdir()
            self._walk = folder
        return folder / "contract.db"


@pytest.fixture
def schema_for(clean_schemas: CleanSchemas) -> Callable[[str], str]:
    """The namespace that plays the part of a fresh one; names that begin alike follow each other in it."""
    playing: dict[str, str] = {}

    def place(namespace: str) -> str:
        role = f"contract_{namespace[0]}"
        if playing.get(role) != namespace:
            playing[role] = namespace
            clean_schemas.clean(role)
        return role

    return place
