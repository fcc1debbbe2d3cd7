"""A batch of many members from a producer that may be killed; as a program: a worker, or the producer.

``python -m tests.processes.streaming`` is a worker. ``... N KEY`` opens the batch under a key, adds members up to N,
and closes it: killed and started again, it goes on.
"""

from __future__ import annotations

import signal
import sys

from mainspring import Mainspring
from tests.timing import short_settings

PIECE = 1_000
"""Members that the producer adds at once: one atomic step."""


async def member(n: int) -> None:
    """One of many."""


def finished(word: str) -> str:
    """A callback of the batch."""
    return word


class Streaming:
    """The tasks, declared on ``app``."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.member = app.task(name="member", queue="members")(member)
        self.finished = app.task(name="finished")(finished)

    def produce(self, n: int, key: str) -> None:
        """Add what is missing of the members 0 to ``n``, and close the batch."""
        batch = self.app.flows.batch(
            "stream", key=key, on_success=self.finished.s("good"), on_finished=self.finished.s("end"),
            on_dead=self.finished.s("dead"),
        ).open()  # fmt: skip
        for first in range(batch.counts().total, n, PIECE):
            # The last piece of a killed producer may arrive after the count was read: at= adds none of it twice.
            batch.add_many((self.member.s(each) for each in range(first, min(n, first + PIECE))), at=first)
        batch.close()


app = Mainspring()
tasks = Streaming(app)

if __name__ == "__main__":
    if sys.argv[1:]:
        tasks.produce(int(sys.argv[1]), sys.argv[2])
    else:
        with app.worker(**short_settings()):
            signal.pause()
