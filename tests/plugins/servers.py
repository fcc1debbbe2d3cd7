"""Pytest plugin: one PostgreSQL and one Valkey per test run, a private database per xdist worker.

The process that runs the tests owns the servers and ends them; workers only ask for their URLs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mainspring.testing import servers

OWNER = "MAINSPRING_TEST_OWNER"
_ours = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    if OWNER not in os.environ:
        os.environ[OWNER] = str(os.getpid())
        config.stash[_ours] = True
        servers.sweep()


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_ours, False):
        servers.end(os.getpid())
        del os.environ[OWNER]


@pytest.fixture(scope="session")
def postgres_url(worker_id: str) -> Iterator[str]:
    """A database of this xdist worker in the run's PostgreSQL."""
    with servers.private_database("postgres", servers.shared("postgres"), _number(worker_id)) as url:
        yield url


@pytest.fixture(scope="session")
def redis_url(worker_id: str) -> Iterator[str]:
    """A numbered database of this xdist worker in the run's Valkey."""
    with servers.private_database("redis", servers.shared("redis"), _number(worker_id)) as url:
        yield url


def _number(worker_id: str) -> int:
    return 0 if worker_id == "master" else int(worker_id.removeprefix("gw"))
