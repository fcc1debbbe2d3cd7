"""Rows of the mission through the public API, with real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring import Mainspring
from tests.rows.crew import Crew, Tasks, crew_of
from tests.timing import short_settings


@pytest.fixture
def app(store_url: str) -> Iterator[Mainspring]:
    """An app on the store under test, with workers that look often."""
    app = Mainspring(store_url, **short_settings())
    yield app
    app.close()


@pytest.fixture
def other(store_url: str) -> Iterator[Mainspring]:
    """Another process, as the store sees it."""
    app = Mainspring(store_url)
    yield app
    app.close()


@pytest.fixture
def crew(store_url: str, tmp_path: Path) -> Iterator[Crew]:
    """Workers in processes of their own."""
    with crew_of(store_url, tmp_path) as crew:
        yield crew


@pytest.fixture
def tasks(app: Mainspring, tmp_path: Path) -> Tasks:
    """What the crew can do, enqueued from here."""
    return Tasks(app, tmp_path)
