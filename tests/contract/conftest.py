"""The contract suite on our three stores: SQLite fully, the others as far as ``SLICE`` says.

What is not in the list is not collected for a store under construction: no skips.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.clock import Clock
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.testing.contract import SLICE
from mainspring.testing.contract.fixtures import *  # noqa: F403  # fixtures are found by name
from mainspring.testing.contract.fixtures import MakeStore

COMPLETE = ("sqlite",)
UNDER_CONSTRUCTION = ("postgres", "redis")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store_name" not in metafunc.fixturenames:
        return
    listed = metafunc.cls is None or metafunc.cls.__name__ in SLICE
    metafunc.parametrize("store_name", COMPLETE + UNDER_CONSTRUCTION if listed else COMPLETE, indirect=True)


@pytest.fixture
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_store(store_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """A client of the test's database; only the server that is needed is started."""
    durability = "full" if store_name == "redis" else "normal"  # Redis keeps what its server is set to keep
    if store_name == "sqlite":
        url = f"sqlite:///{tmp_path / 'contract.db'}"
    else:
        url = request.getfixturevalue(f"{store_name}_url")

    def make(*, namespace: str, clock: Clock) -> Store:
        return connect(url, namespace=namespace, durability=durability, clock=clock)

    return make
