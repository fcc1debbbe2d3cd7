"""A program whose signal handler raises at random moments of its calls: URL, seed, kind of error, strikes.

After each strike the next calls must work and return their own replies.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
from typing import Any

from mainspring import Mainspring

SOON = (0.000_05, 0.003)
"""Seconds until the first alarm. It may strike where Python ignores an exception (in a destructor): it is repeated."""
AGAIN = 0.05
HANGS = 90.0
"""Seconds until a program that hangs shows where, and ends."""


class Stop(Exception):
    """The error of a program."""


class Strikes:
    """The signal handler."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error
        self.armed = False
        signal.signal(signal.SIGALRM, self)

    def __call__(self, *_: Any) -> None:
        if self.armed:
            raise self.error

    def begin(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        self.armed = True


def main(url: str, seed: str, kind: str, strikes: str) -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(HANGS, exit=True)
    struck = Strikes({"own": Stop, "timeout": TimeoutError}[kind])
    dice = random.Random(int(seed))
    app = Mainspring(url)

    @app.task(name="interrupting.work")
    def work(n: int) -> None: ...

    never = work.enqueue(-1)
    never.info()
    for n in range(int(strikes)):
        try:
            struck.begin(dice.uniform(*SOON))
            while True:
                assert work.enqueue(n).info().args == {"n": n}
                if n % 3 == 0:
                    never.result()
        except struck.error:
            struck.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        job = work.enqueue(n)
        info = job.info()
        assert (info.id, info.args) == (job.id, {"n": n})
        assert never.info().args == {"n": -1}
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
