"""What users and our own suite test with: ``TestApp``, clocks, servers, the store contract, the pytest plugin."""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing: a pytest plugin loads this in every run
if TYPE_CHECKING:
    from mainspring.common.clock import MovableClock as MovableClock
    from mainspring.testing.app import Drained as Drained
    from mainspring.testing.app import TestApp as TestApp

__all__ = ["Drained", "MovableClock", "TestApp"]

_HOMES = {
    "Drained": "mainspring.testing.app",
    "MovableClock": "mainspring.common.clock",
    "TestApp": "mainspring.testing.app",
}


def __getattr__(name: str) -> object:
    """Imported when first used: the plugin must cost nothing where it is not."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mainspring.testing' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
