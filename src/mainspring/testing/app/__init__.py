"""``app.test()``: this app on a private store with a movable clock, its jobs run by a real worker when told to."""

from mainspring.testing.app.test_app import TestApp, TestOptions
from mainspring.testing.app.watched_store import Drained

__all__ = ["Drained", "TestApp", "TestOptions"]
