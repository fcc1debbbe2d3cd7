"""Trouble that lasts is said when it begins, every 30 s while it lasts, and when it is over. Not more.

A store that cannot be reached is the trouble of all who talk to it: that is told by their common outage.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING

from mainspring.errors import StoreUnavailable
from mainspring.worker.loop.outage import AGAIN

if TYPE_CHECKING:
    from mainspring.worker.loop.outage import Outage

_SOON = 2.0


class RetryLog:
    """Counts the failures of one thing in a row, says them sparingly, and tells how long to wait.

    ``tries``: it is tried until it works; else an outage does not wait for it to be over.
    """

    def __init__(
        self,
        what: str,
        log: logging.Logger,
        outage: Outage | None = None,
        *,
        shortest: float = 0.05,
        longest: float = 1.0,
        tries: bool = True,
    ) -> None:
        self.failures = 0
        self.what = what
        self.outage = outage
        self._log = log
        self._shortest = shortest
        self._longest = longest
        self._tries = tries
        self._own = 0
        """Failures that are no outage's."""
        self._began = 0.0
        self._said = 0.0

    def failed(self, error: BaseException) -> float:
        """It failed; returns the seconds to wait before the next try, growing and jittered."""
        self.failures += 1
        pause = min(self._longest, self._shortest * 2.0 ** min(self.failures - 1, 10))
        if self.outage is not None and isinstance(error, StoreUnavailable):
            self.outage.failed(self.what, error, soon=self._tries and pause <= _SOON)
        else:
            self._say(error)
        return pause * random.uniform(0.5, 1.0)

    def over(self) -> bool:
        """It worked; True if it had failed before."""
        if self.outage is not None:
            self.outage.worked(self.what)
        if not self.failures:
            return False
        if self._own:
            self._log.warning(
                "%s works again after %.1f s and %d failures", self.what, time.monotonic() - self._began, self._own
            )
        self.failures = self._own = 0
        return True

    def _say(self, error: BaseException) -> None:
        now = time.monotonic()
        if not self._own:
            self._began = self._said = now
            self._log.warning("%s failed, trying again: %s", self.what, error)
        elif now - self._said >= AGAIN:
            self._said = now
            self._log.warning("%s has been failing for %.0f s: %s", self.what, now - self._began, error)
        self._own += 1
