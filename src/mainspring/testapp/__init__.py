"""``app.test()``: this app on a private store with a movable clock, its jobs run by a real worker when told to."""

from mainspring.testapp.face import TestApp, TestOptions
from mainspring.testapp.watched import Drained

__all__ = ["Drained", "TestApp", "TestOptions"]
