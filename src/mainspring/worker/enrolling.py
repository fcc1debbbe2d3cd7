"""How a worker gets its row in the store, and what it asks of whoever keeps its lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mainspring.clock import boottime
from mainspring.ids import worker_id
from mainspring.records import Beat, Registration
from mainspring.worker.trouble import Trouble

if TYPE_CHECKING:
    from mainspring.stores.base import Store
    from mainspring.worker.board import Board
    from mainspring.worker.turner import Turner

log = logging.getLogger("mainspring.worker")


class Beats(Protocol):
    """What the worker asks of its beater."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def wake(self) -> None: ...
    async def wait_registered(self) -> None: ...


class MakeBeats(Protocol):
    def __call__(
        self,
        registration: Callable[[], Registration],
        worker_id: Callable[[], str],
        *,
        on_lost: Callable[[], None],
        on_lease_low: Callable[[], None],
    ) -> Beats: ...


async def enrol(
    turner: Turner, store: Store, registration: Callable[[], Registration], board: Board, beater: Beats | None
) -> None:
    """Register the turner's current id, however long it takes."""
    if beater is not None:
        beater.wake()  # it learns the new name from now on; which of us registers it first does not matter
    trouble = Trouble("registering the worker", log)
    while True:
        sent, said = boottime(), registration()
        try:
            (reply,) = await store.beat([Beat(turner.id, said)])
        except Exception as error:  # noqa: BLE001 - said sparingly, and tried again
            await asyncio.sleep(trouble.failed(error))
            continue
        trouble.over()
        if reply.alive:
            break
        turner.id = worker_id()  # that name is taken
    board.extend(sent + said.lease / 1e6)
