"""Random walks of two clients, compared step by step with the model: everything on SQLite, the slice elsewhere."""

import pytest

from mainspring.testing.contract.fixtures import MakeStore
from mainspring.testing.contract.machine import FEW, SMALL, CommonMachine, FullMachine, walk
from mainspring.testing.contract.walks import KeyedMachine


@pytest.mark.timeout(900)
def test_random_walks(make_store: MakeStore, store_name: str) -> None:
    if store_name == "sqlite":
        walk(FullMachine, make_store, SMALL)
        walk(KeyedMachine, make_store, SMALL)
    else:
        walk(CommonMachine, make_store, FEW)
