"""Rows of the mission through the public API, with real workers. A store joins by its name below."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainspring import Mainspring

PROVEN = ("sqlite",)


@pytest.fixture(params=PROVEN)
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def app(store_url: str) -> Iterator[Mainspring]:
    """An app on the store under test, with workers that look often."""
    app = Mainspring(store_url, lease="3s", sweep="500ms", poll="200ms", grace="1s", drain="5s")
    yield app
    app.close()
