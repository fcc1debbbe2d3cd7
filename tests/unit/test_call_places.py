"""Places of blocking calls: at most so many at once, in order, and none is lost whatever ends a call."""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType
from typing import Any

from mainspring.stores.postgres.driver.session import CallPlace, CallPlaces
from tests.timing import patience


class Interrupt(Exception):
    """Raised in the calling thread at a chosen line."""


def take_and_use(places: CallPlaces) -> None:
    held: list[CallPlace] = []
    place = places.take(0.01)
    assert place is not None
    held.append(place)


def test_a_place_is_free_again_when_its_call_has_ended() -> None:
    places = CallPlaces(2)
    first, second = places.take(0), places.take(0)
    assert (places.free, places.take(0)) == (0, None)
    del first
    assert places.free == 1
    assert places.take(0) is not None
    del second


def test_no_place_is_lost_by_an_exception_at_any_line() -> None:
    places = CallPlaces(1)
    strikes = 0
    for line in range(30):
        left = line

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left
            if event == "line":
                left -= 1
                if left < 0:
                    raise Interrupt
            return trace

        sys.settrace(trace)
        try:
            take_and_use(places)
        except Interrupt:
            strikes += 1
        finally:
            sys.settrace(None)
        gc.collect()
        assert places.free == 1
    assert strikes > 5


def test_a_call_that_waits_gets_the_place_that_is_freed() -> None:
    places = CallPlaces(1)
    held = [places.take(0)]
    got: list[CallPlace | None] = []
    waiting = threading.Thread(target=lambda: got.append(places.take(patience(30))))
    waiting.start()
    held.clear()
    places.wake()
    waiting.join(patience(30))
    assert got != [None]
    assert len(got) == 1


def test_never_more_calls_than_places() -> None:
    places, running, most, lock = CallPlaces(3), 0, 0, threading.Lock()

    def call() -> None:
        nonlocal running, most
        for _ in range(50):
            place = places.take(patience(30))
            assert place is not None
            with lock:
                running += 1
                most = max(most, running)
            with lock:
                running -= 1
            del place
            places.wake()

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 3
    assert places.free == 3
