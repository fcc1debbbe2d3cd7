"""Trouble that lasts is said when it begins, every 30 s while it lasts, and when it is over. Not more."""

from __future__ import annotations

import logging
import random
import time

_AGAIN = 30.0


class Trouble:
    """Counts the failures of one thing in a row, says them sparingly, and tells how long to wait."""

    def __init__(self, what: str, log: logging.Logger, *, shortest: float = 0.05, longest: float = 1.0) -> None:
        self.failures = 0
        self._what = what
        self._log = log
        self._shortest = shortest
        self._longest = longest
        self._began = 0.0
        self._said = 0.0

    def failed(self, error: BaseException) -> float:
        """It failed; returns the seconds to wait before the next try, growing and jittered."""
        now = time.monotonic()
        if not self.failures:
            self._began = self._said = now
            self._log.warning("%s failed, trying again: %s", self._what, error)
        elif now - self._said >= _AGAIN:
            self._said = now
            self._log.warning("%s has been failing for %.0f s: %s", self._what, now - self._began, error)
        self.failures += 1
        pause = min(self._longest, self._shortest * 2.0 ** min(self.failures - 1, 10))
        return pause * random.uniform(0.5, 1.0)

    def over(self) -> bool:
        """It worked; True if it had failed before."""
        if not self.failures:
            return False
        self._log.warning(
            "%s works again after %.1f s and %d failures", self._what, time.monotonic() - self._began, self.failures
        )
        self.failures = 0
        return True
