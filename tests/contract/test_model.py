"""Random walks of two clients, compared step by step with the model."""

import hypothesis
import pytest

from mainspring.testing.contract.fixtures import MakeStore
from mainspring.testing.contract.model.flow_walks import FlowMachine
from mainspring.testing.contract.model.key_walks import KeyedMachine
from mainspring.testing.contract.model.machine import FEW, SMALL, CommonMachine, FullMachine, walk
from mainspring.testing.contract.model.replace_walks import LatestMachine
from mainspring.testing.contract.model.settings_walks import SettledMachine

FEWEST = hypothesis.settings(FEW, max_examples=6)
"""For stores that are slow in every step; the soak does thousands on each."""

FLOWS = hypothesis.settings(SMALL, max_examples=50, stateful_step_count=25)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", [FullMachine, KeyedMachine, LatestMachine, SettledMachine])
def test_random_walks(make_store: MakeStore, store_name: str, machine: type[CommonMachine]) -> None:
    """Each step compares the store with the model and fails at the first difference."""
    walk(machine, make_store, FEW if store_name == "sqlite" else FEWEST)


@pytest.mark.timeout(900)
def test_random_flows(make_store: MakeStore) -> None:
    """Graphs of jobs and joins: each step compares states, reasons, edges and counts of joins with the model."""
    walk(FlowMachine, make_store, FLOWS)
