"""Log lines for calls that are retried, and for outages of the store.

A failure that lasts is logged when it begins, every 30 seconds while it lasts, and when it is over. A worker has many
parts that call the store. When the store cannot be reached, all of them fail together: they share one ``Outage``, so
the log shows one outage and not one per part.
"""

from __future__ import annotations

import logging
import threading
import time

from mainspring.common.pause import jittered
from mainspring.errors import StoreUnavailable

REPEAT_AFTER = 30.0
"""Seconds between two log lines about the same failure."""
CALM = 1.0
"""Seconds without a failure after which an outage is over."""
_RETRIES_SOON = 2.0
"""An operation that pauses longer than this many seconds does not keep an outage open."""


class Outage:
    """The state of one outage. The parts of a process that call one store share it; any thread may use it.

    An outage is over when every operation that failed has succeeded again and none has failed for ``CALM`` seconds.
    So a store that fails now and then is one outage, not many.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._failures = 0
        self._began = self._logged = self._last = 0.0

    def record_failure(self, operation: str, error: BaseException, *, retries_soon: bool) -> None:
        """A call failed. With ``retries_soon`` the outage lasts at least until ``operation`` has succeeded."""
        now = time.monotonic()
        with self._lock:
            begins = not self._failures
            lasts = not begins and now - self._logged >= REPEAT_AFTER
            if begins:
                self._began = now
            if begins or lasts:
                self._logged = now
            self._last = now
            self._failures += 1
            if retries_soon:
                self._failing.add(operation)
            else:
                self._failing.discard(operation)
        if begins:
            self._log.warning("the store failed while %s; retrying: %s", operation, error)
        elif lasts:
            self._log.warning(
                "the store has been failing for %.0f s, last while %s: %s", now - self._began, operation, error
            )

    def record_success(self, operation: str) -> None:
        """A call succeeded."""
        if not self._failures:
            return
        now = time.monotonic()
        with self._lock:
            self._failing.discard(operation)
            if self._failing or not self._failures or now - self._last < CALM:
                return
            failures, self._failures = self._failures, 0
        self._log.warning("the store works again after %.1f s and %d failures", self._last - self._began, failures)

    def others_fail(self, operation: str) -> bool:
        """Whether operations other than ``operation`` fail too."""
        return not self._failing <= {operation}


class RetryLog:
    """Counts the failures in a row of one operation, logs them, and computes the pause before the next try.

    ``operation`` completes the sentence "the store failed while ...", for example ``sending a turn``. Errors of class
    ``StoreUnavailable`` are logged by ``outage``, other errors here. ``until_success=False`` is for an operation that
    may be given up: the outage does not wait for its success.
    """

    def __init__(
        self,
        operation: str,
        log: logging.Logger,
        outage: Outage | None = None,
        *,
        first_pause: float = 0.05,
        max_pause: float = 1.0,
        until_success: bool = True,
    ) -> None:
        self.failures = 0
        self.operation = operation
        self.outage = outage
        self._log = log
        self._first_pause = first_pause
        self._max_pause = max_pause
        self._until_success = until_success
        self._own_failures = 0
        """Failures that are not part of an outage."""
        self._began = 0.0
        self._logged = 0.0

    def record_failure(self, error: BaseException) -> float:
        """The operation failed. Returns the seconds to wait before the next try: they grow, and are jittered."""
        self.failures += 1
        pause = min(self._max_pause, self._first_pause * 2.0 ** min(self.failures - 1, 10))
        if self.outage is not None and isinstance(error, StoreUnavailable):
            retries_soon = self._until_success and pause <= _RETRIES_SOON
            self.outage.record_failure(self.operation, error, retries_soon=retries_soon)
        else:
            self._log_failure(error)
        return jittered(pause)

    def record_success(self) -> bool:
        """The operation succeeded. Returns True if it had failed before."""
        if self.outage is not None:
            self.outage.record_success(self.operation)
        if not self.failures:
            return False
        if self._own_failures:
            self._log.warning(
                "%s works again after %.1f s and %d failures",
                self.operation, time.monotonic() - self._began, self._own_failures,
            )  # fmt: skip
        self.failures = self._own_failures = 0
        return True

    def _log_failure(self, error: BaseException) -> None:
        now = time.monotonic()
        if not self._own_failures:
            self._began = self._logged = now
            self._log.warning("%s failed; retrying: %s", self.operation, error)
        elif now - self._logged >= REPEAT_AFTER:
            self._logged = now
            self._log.warning("%s has been failing for %.0f s: %s", self.operation, now - self._began, error)
        self._own_failures += 1
