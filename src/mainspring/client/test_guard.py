"""Guards that are called before an app's own store is opened in this process.

The pytest plugin refuses stores with real data here: see ``mainspring.testing.plugin``. The private store of
``app.test()`` is not checked.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing: a pytest plugin loads this in every run
if TYPE_CHECKING:
    from collections.abc import Callable

opening: list[Callable[[str], None]] = []
"""Functions that get the URL, and raise to refuse it."""


def ask(url: str) -> None:
    """Call all guards; returns if no guard refuses this URL."""
    for guard in opening:
        guard(url)
