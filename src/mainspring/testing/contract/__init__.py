"""The store contract as a test suite. Printed with ``pytest --collect-only`` it reads as the specification.

The suite has one package for each feature of ``mainspring.stores.base``, with a module for each aspect of the feature:

    package        tests
    jobs/          Jobs: enqueue, dependents, follow-up jobs, actions of users, reports, retention.
    query/         Queries: the same jobs are found, counted, tallied and changed.
    claims/        Turns, the order of claims, acks, tokens, cancel orders, promotion, lost replies, wake-ups.
    workers/       Workers: heartbeats, rescue and retirement, and which job is charged with a crash.
    limits/        Limits: concurrency and rates, with and without keys, and holders outside of a claim.
    breakers/      Breakers: what opens and closes them, their probes, and changes by hand.
    fair_keys/     Fair keys: claims are shared by weight between the keys of a queue.
    unique_keys/   Unique keys: one job holds a key, and in some modes the newest enqueue replaces the waiting job.
    queues/        Queues: depth, order, limits of a queue, modes and disabled queues.
    schedules/     Schedules: rows that are exchanged by number, runs, and due schedules.
    store/         The store itself: opening, closing, migrations, namespaces and documents.
    model/         Random walks of several clients over a store, compared step by step with a model of the contract.

The tests need three fixtures: ``store`` (open, empty, behind the door, with ``clock`` as its clock), ``second_store``
(another client of the same database) and ``elsewhere`` (the same database under another namespace).
``mainspring.testing.contract.fixtures`` makes all three from ``make_store``, which the author of a store supplies:

    # conftest.py
    import pytest
    from mainspring.stores.door import Door

    pytest_plugins = ["mainspring.testing.contract.fixtures"]

    @pytest.fixture
    def make_store(tmp_path):
        def make(*, namespace, clock):
            return Door(MyStore(tmp_path / "store", namespace=namespace, clock=clock))

        return make

    # test_contract.py: the whole contract
    from mainspring.testing.contract.everything import *

    # or a part of it, for example test_rates.py
    from mainspring.testing.contract.limits.rates import *

    # test_model.py: random walks of two clients, compared step by step with a model of the contract
    from mainspring.testing.contract.model.key_walks import KeyedMachine
    from mainspring.testing.contract.model.machine import FullMachine, walk

    def test_random_walks(make_store):
        walk(FullMachine, make_store)
        walk(KeyedMachine, make_store)

A test never asks which store it has, and no test is skipped.
"""
