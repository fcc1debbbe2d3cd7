"""Pytest plugin: `@pytest.mark.row("W3")` ties a test to rows of the mission; `--store` chooses tests.

`@pytest.mark.stores("sqlite")` keeps a test that asks for `store_name` to the named stores: for what only they have, or
for what does not depend on the store.
"""

from __future__ import annotations

import pytest

from tools import mission


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run only the tests of this store; any: tests that need no store, or all stores. May be given several times"
    parser.addoption("--store", action="append", choices=(*mission.STORES, "any"), default=[], help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stores(*names): the stores that this test runs on; else on all of them")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store_name" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("stores")
        metafunc.parametrize("store_name", mark.args if mark else mission.STORES, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = {row.id for row in mission.parse(mission.TABLE.read_text())}
    for item in items:
        rows = rows_of(item)
        if unknown := set(rows) - known:
            raise pytest.UsageError(f"{item.nodeid}: no such row in {mission.TABLE.name}: {sorted(unknown)}")
        item.user_properties += [("store", store_of(item)), *(("row", row) for row in rows)]
    if chosen := config.getoption("--store"):
        dropped = [item for item in items if store_of(item) not in chosen]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if store_of(item) in chosen]


def rows_of(item: pytest.Item) -> list[str]:
    """Every row the test carries, from its own marks and those around it."""
    return [str(row) for mark in item.iter_markers("row") for row in mark.args]


def store_of(item: pytest.Item) -> str:
    """The store that the test runs on, or "any"."""
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("store_name", "any")) if callspec else "any"
