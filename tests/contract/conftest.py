"""The contract suite, whole, on our three stores: the same tests, no skips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.common.clock import Clock
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.testing.contract.fixtures import *  # noqa: F403  # fixtures are found by name
from mainspring.testing.contract.fixtures import MakeStore
from tests.plugins.clean import CleanSchemas

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before the rows are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever of the contract runs on a store is part of the row about it."""
    for item in items:
        if item.path.is_relative_to(HERE) and "make_store" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.row("E1"))


@pytest.fixture
def make_store(store_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """A client of the test's database; only the server that is needed is started."""
    durability = "full" if store_name == "redis" else "normal"  # Redis keeps what its server is set to keep
    if store_name == "sqlite":
        url = f"sqlite:///{tmp_path / 'contract.db'}"
    else:
        url = request.getfixturevalue(f"{store_name}_url")
    place = request.getfixturevalue("schema_for") if store_name == "postgres" else str

    def make(*, namespace: str, clock: Clock) -> Store:
        return connect(url, namespace=place(namespace), durability=durability, clock=clock)

    return make


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
