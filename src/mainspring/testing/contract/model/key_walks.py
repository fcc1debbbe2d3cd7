"""Random walks over unique keys, follow-up jobs and modes: simple jobs that end often, two keys, two queues."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from mainspring.jobs.outcomes import Ack
from mainspring.queues.records import QueueMode
from mainspring.states import Action
from mainspring.worker.records import Want

from .draws import LANES, QUEUES, ends, keyed_jobs
from .machine import FullMachine, WalkWorker

CHANGES = (
    None,
    None,
    *((queue, mode) for mode in (QueueMode.PAUSED, QueueMode.DRAINING, QueueMode.OPEN) for queue in QUEUES),
)
"""A queue that gets another mode, or nothing."""


class KeyedMachine(FullMachine):
    """``walk(KeyedMachine, make_store)``"""

    actions: tuple[Action, ...] = (Action.CANCEL, Action.RETRY, Action.RETRY, Action.DELETE)
    draw_job = staticmethod(keyed_jobs)

    @rule(data=st.data(), n=st.integers(1, 3))
    def enqueue_and_take(self, data: st.DataObject, n: int) -> None:
        self.send_batch(data, n)
        self.next_turn(data, [Want(LANES, 4)], True, 1, False)

    @rule(data=st.data(), change=st.sampled_from(CHANGES))
    def end_all(self, data: st.DataObject, change: tuple[str, QueueMode] | None) -> None:
        """A worker with jobs ends all of them and claims others; perhaps a queue gets another mode meanwhile."""
        if change is not None:
            self.change_mode(data, *change)
        self.next_turn(data, [Want(LANES, 4)], True, 1, False)

    def some_acks(self, data: st.DataObject, caller: WalkWorker) -> list[Ack]:
        ending = [data.draw(ends(lease)) for lease in self.held(caller)]
        return ending or super().some_acks(data, caller)

    def change_mode(self, data: st.DataObject, queue: str, mode: QueueMode) -> None:
        self.call(data, lambda store: store.set_queue_mode([queue], mode))
        self.model.set_mode(queue, mode)
        self.same_modes()
        self.check()

    def same_modes(self) -> None:
        rows = self.run(self.clients[1].queues())
        known = {queue: mode for queue, mode in self.model.modes.items() if mode is not QueueMode.OPEN}
        assert {row.name: row.mode for row in rows} == known
