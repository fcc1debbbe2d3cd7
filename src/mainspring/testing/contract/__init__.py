"""The store contract as a test suite. Printed with ``pytest --collect-only`` it reads as the specification.

Each module holds test classes about one part of ``mainspring.stores.base``. They need three fixtures:
``store`` (open, empty, behind the door, with ``clock`` as its clock), ``second_store`` (another client
of the same database) and ``elsewhere`` (the same database under another namespace). All three are made by
``mainspring.testing.contract.fixtures`` from one that the author of a store supplies:

    # conftest.py
    import pytest
    from mainspring.stores.door import Door

    pytest_plugins = ["mainspring.testing.contract.fixtures"]

    @pytest.fixture
    def make_store(tmp_path):
        def make(*, namespace, clock):
            return Door(MyStore(tmp_path / "store", namespace=namespace, clock=clock))

        return make

    # test_contract.py
    from mainspring.testing.contract.everything import *

    # test_model.py: random walks of two clients, compared step by step with a model of the contract
    from mainspring.testing.contract.machine import FullMachine, walk
    from mainspring.testing.contract.walks import KeyedMachine

    def test_random_walks(make_store):
        walk(FullMachine, make_store)
        walk(KeyedMachine, make_store)

A test never asks which store it has, and none is skipped.
"""

from __future__ import annotations

MODULES = (
    "acks",
    "acting",
    "breakers",
    "buckets",
    "delays",
    "depth",
    "documents",
    "doors",
    "edges",
    "enqueue",
    "facts",
    "fair",
    "fair_lanes",
    "fair_queues",
    "filters",
    "finding",
    "follows",
    "guests",
    "holders",
    "items",
    "keeping",
    "kept",
    "kept_places",
    "keys",
    "large",
    "latest",
    "life",
    "limits",
    "lines",
    "looking",
    "lost",
    "meetings",
    "modes",
    "order",
    "orders",
    "pairs",
    "parts",
    "parts_around",
    "parts_in_queues",
    "parts_joined",
    "parts_linked",
    "parts_noted",
    "parts_races",
    "probes",
    "promote",
    "pruning",
    "races",
    "rates",
    "relaning",
    "relays",
    "replacing",
    "reports",
    "rescues",
    "resized",
    "roomy",
    "standing",
    "suspects",
    "swapped_jobs",
    "swapping",
    "switches",
    "tallying",
    "terms",
    "times",
    "tripping",
    "turns",
    "waking",
)
"""The modules that hold test classes."""
