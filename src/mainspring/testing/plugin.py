"""The pytest plugin. It imports the rest of Mainspring only when a fixture needs it.

Fixtures
    ``mainspring_app``   the app that ``$MAINSPRING_APP`` or ``app =`` in the settings file names; override it to choose
    ``mainspring_test``  its ``app.test()``, open for the length of the test

A test that uses a store without ``app.test()`` gets the error ``OutsideTest``, unless the store is in memory, in a file
below the directory for temporary files and outside of the project, or named in ``mainspring_allow_urls``.

Settings of pytest
    ``mainspring_strict``      false switches this check off (default: true)
    ``mainspring_allow_urls``  URLs, or patterns with ``*``, of stores that tests may use, one per line
"""

from __future__ import annotations

import pytest

from mainspring.client.test_guard import opening

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing: this is loaded in every run
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.app import Mainspring
    from mainspring.testing.app import TestApp


def pytest_addoption(parser: pytest.Parser) -> None:
    strict = "Refuse stores that are not for tests, outside of app.test()."
    parser.addini("mainspring_strict", strict, type="bool", default=True)
    allowed = "URLs of stores that tests may use outside of app.test(); * matches any text."
    parser.addini("mainspring_allow_urls", allowed, type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    if not config.getini("mainspring_strict"):
        return

    def refuse(url: str) -> None:
        from mainspring.testing import chosen

        chosen.check_url(
            url,
            allowed=config.getini("mainspring_allow_urls"),
            basetemp=config.getoption("basetemp"),
            root=config.rootpath,
        )

    opening.append(refuse)
    config.add_cleanup(lambda: opening.remove(refuse))


@pytest.fixture(scope="session")
def mainspring_app(pytestconfig: pytest.Config) -> Mainspring:
    """The app of this project."""
    from mainspring.testing import chosen

    return chosen.app_of_project(pytestconfig.rootpath)


@pytest.fixture
def mainspring_test(mainspring_app: Mainspring) -> Iterator[TestApp]:
    """The project's app in test mode: a private store, a movable clock, jobs run by ``drain()``."""
    with mainspring_app.test() as t:
        yield t
