"""``app.test()``: this app on a private store with a movable clock; a real worker runs its jobs on request."""

from mainspring.testing.app.test_app import TestApp, TestOptions
from mainspring.testing.app.watched_store import Drained

__all__ = ["Drained", "TestApp", "TestOptions"]
