"""A store of the test's own, whose server can be killed and frozen, and whose wires can be cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.testing import chaos
from tests.processes.conftest import runtime_dir
from tests.processes.fleet import Fleet
from tests.soak.arena import Arena, arena

__all__ = ["runtime_dir"]


@pytest.fixture
def ground(store_name: str, tmp_path: Path) -> Iterator[Arena]:
    with arena(store_name, tmp_path) as made:
        yield made


@pytest.fixture
def fleet(ground: Arena, tmp_path: Path) -> Iterator[Fleet]:
    """Its producer goes straight to the store."""
    fleet = Fleet(ground.url, tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def wire(ground: Arena) -> Iterator[chaos.Proxy]:
    """The proxy between a process under test and its store."""
    with chaos.Proxy(ground.url) as wire:
        yield wire
