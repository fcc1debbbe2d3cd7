"""Who is asked before an app's own store is opened in this process.

A test tool refuses stores with real data here: see ``mainspring.testing.plugin``. An ``app.test()``
is not asked about: its store is private.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing: a pytest plugin loads this in every run
if TYPE_CHECKING:
    from collections.abc import Callable

opening: list[Callable[[str], None]] = []
"""Each gets the URL and raises to refuse it."""


def ask(url: str) -> None:
    """Returns if nobody objects to this URL."""
    for guard in opening:
        guard(url)
