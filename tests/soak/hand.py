"""A hand at the switches of flow control: it stops queues and lets them go on, and opens a breaker."""

from __future__ import annotations

import time
from collections.abc import Callable

from mainspring import Mainspring
from mainspring.errors import InvalidOption, NotFound, StoreError
from mainspring.testing.history import Pause
from tests.soak.flow import BREAKER, HELD, LONGEST


class Hand:
    """``pauses`` are the confirmed pauses, ``trips`` all trips that were tried."""

    def __init__(self, url: str) -> None:
        self.pauses: list[Pause] = []
        self.trips: list[float] = []
        self._app = Mainspring(url)

    def pause(self, seconds: float) -> None:
        self._hold(self._app.queues.pause, self._app.queues.resume, seconds, disabled=False)

    def disable(self, seconds: float) -> None:
        self._hold(self._app.queues.disable, self._app.queues.enable, seconds, disabled=True)

    def trip(self) -> None:
        """A reader of the breakers sees the result, if the trip is not over by then."""
        self.trips.append(time.time() - 1)  # the store's clock may be behind
        try:
            self._app.breakers.trip(BREAKER, LONGEST)
        except (StoreError, InvalidOption):  # it may not be known yet
            return

    def let_go(self) -> None:
        """What was not confirmed may have arrived late."""
        self._insist(self._app.queues.resume)
        self._insist(self._app.queues.enable)

    def close(self) -> None:
        self._app.close()

    def _hold(self, stop: Callable[..., None], go_on: Callable[..., None], seconds: float, *, disabled: bool) -> None:
        try:
            stop(HELD, create=True)  # no worker and no job may have named it yet
            began = time.time()
        except StoreError:
            began = None
        time.sleep(seconds)
        ended = time.time()
        self._insist(go_on)
        if began is not None:
            self.pauses.append(Pause(queue=HELD, began=began, ended=ended, disabled=disabled))

    def _insist(self, go_on: Callable[..., None]) -> None:
        while True:
            try:
                return go_on(HELD)
            except NotFound:  # it was never stopped
                return None
            except StoreError:
                time.sleep(0.1)
