"""One story for each outage of the store, however many parts of a process meet it.

Said is when it begins, every 30 s while it lasts, and when it is over: when every part that failed has
worked again and none has failed for a moment. So a store that fails now and then makes one story, not many.
"""

from __future__ import annotations

import logging
import threading
import time

AGAIN = 30.0
CALM = 1.0
"""Seconds without a failure after which an outage is over."""


class Outage:
    """Shared by the parts of one process that talk to one store, whatever threads they are in."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._failures = 0
        self._began = self._said = self._last = 0.0

    def failed(self, what: str, error: BaseException, *, soon: bool) -> None:
        """A call of the part ``what`` failed. ``soon``: it tries again shortly, so the end waits for it."""
        now = time.monotonic()
        with self._lock:
            begins = not self._failures
            lasts = not begins and now - self._said >= AGAIN
            if begins:
                self._began = now
            if begins or lasts:
                self._said = now
            self._last = now
            self._failures += 1
            if soon:
                self._failing.add(what)
            else:
                self._failing.discard(what)
        if begins:
            self._log.warning("the store failed, trying again: %s: %s", what, error)
        elif lasts:
            self._log.warning("the store has been failing for %.0f s: %s: %s", now - self._began, what, error)

    def worked(self, what: str) -> None:
        """A call of the part ``what`` succeeded."""
        if not self._failures:
            return
        now = time.monotonic()
        with self._lock:
            self._failing.discard(what)
            if self._failing or not self._failures or now - self._last < CALM:
                return
            failures, self._failures = self._failures, 0
        self._log.warning("the store works again after %.1f s and %d failures", self._last - self._began, failures)

    def beside(self, what: str) -> bool:
        """Whether other parts than ``what`` fail too."""
        return not self._failing <= {what}
