"""Election: one leader at a time in the whole fleet, with a term, until it stops or is lost."""

from __future__ import annotations

import asyncio
import inspect
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mainspring.client import blocking
from mainspring.common.handles import Handle
from mainspring.errors import InvalidOption, UseError, WouldBlockLoop
from mainspring.locks.candidate import Callback, Callbacks, Campaign
from mainspring.locks.hold import Hold
from mainspring.locks.names import LockName, checked_ttl

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration


class Election(Handle):
    """A candidate: ``start`` and ``stop``, ``with`` or ``async with``, also in ``app.lifespan``. A leader is renewed
    from the background while its process lives; after a crash another is elected within the ttl.

    ``elected(term)`` and ``lost(term)`` are called one after the other: a ``def`` in a thread, an ``async def`` on the
    loop of ``async with``, else in a thread too. If ``elected`` still runs when the term ends, it is cancelled if
    it is async; a ``def`` that goes on asks ``leader``.
    """

    INSTEAD = "Make it again where it is needed: app.election(name)."

    def __init__(
        self, app: Mainspring, spot: LockName, ttl: Duration, elected: Callback | None, lost: Callback | None
    ) -> None:
        self.name = spot.name
        self._app = app
        self._spot = spot
        self._ttl = checked_ttl(ttl, str(spot))
        self._told = Callbacks(_checked("elected", elected, spot), _checked("lost", lost, spot))
        self._campaign: Campaign | None = None
        self._task: asyncio.Task[None] | None = None

    # ---- use ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Stand from now on, until it is stopped. Does not wait for the outcome, nor for the store."""
        if blocking.in_loop() and not blocking.in_notebook():
            raise WouldBlockLoop("election.start")
        name = f"mainspring-election-{self.name}"
        threading.Thread(target=asyncio.run, args=(self._begun().run(),), name=name, daemon=True).start()

    async def astart(self) -> None:
        self._task = asyncio.create_task(self._begun().run())

    def stop(self) -> None:
        """Stand no more. A leader steps down: ``lost`` is called, then another can be elected at once."""
        blocking.run("election.stop", self.astop())

    async def astop(self) -> None:
        if self._campaign is not None:
            await self._campaign.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self.astart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.astop()

    # ---- inspect ------------------------------------------------------------------------------

    @property
    def leader(self) -> bool:
        """Whether this is the leader: false from the moment on at which the store may let another in. Asks nobody."""
        hold = None if self._campaign is None else self._campaign.hold
        return hold is not None and not hold.lost

    @property
    def term(self) -> int:
        """The fencing number of its last term, larger than that of every leader before; 0 if there was none."""
        return 0 if self._campaign is None else self._campaign.term

    def __repr__(self) -> str:
        return f"<Election {self.name}>"

    # ---- private ------------------------------------------------------------------------------

    def _begun(self) -> Campaign:
        if self._campaign is not None and self._campaign.is_here:
            hint = "Stop it first, or make another candidate: app.election(name)."
            raise UseError(f"{self._spot}: it stands already", hint=hint)
        self._campaign = Campaign(lambda: Hold(self._app.client, self._spot, self._ttl), self._told)
        return self._campaign


def _checked(name: str, callback: Any, spot: LockName) -> Callback | None:
    """A function of the term."""
    if callback is None:
        return None
    hint = f"def {name}(term: int) -> None: ..."
    if not callable(callback):
        raise InvalidOption(name, callback, "is not a function", subject=str(spot), hint=hint)
    try:
        inspect.signature(callback).bind(1)
    except TypeError:
        raise InvalidOption(name, callback, "must take the term", subject=str(spot), hint=hint) from None
    except ValueError:  # of a builtin nobody knows
        pass
    return callback  # type: ignore[no-any-return]  # it was given by the user
