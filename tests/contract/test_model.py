"""Random walks of two clients, compared step by step with the model."""

import pytest

from mainspring.testing.contract.fixtures import MakeStore
from mainspring.testing.contract.latest_walks import LatestMachine
from mainspring.testing.contract.machine import FEW, CommonMachine, FullMachine, walk
from mainspring.testing.contract.walks import KeyedMachine


@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", [FullMachine, KeyedMachine, LatestMachine])
def test_random_walks(make_store: MakeStore, machine: type[CommonMachine]) -> None:
    walk(machine, make_store, FEW)
