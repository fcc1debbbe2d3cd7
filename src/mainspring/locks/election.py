"""Election: one leader at a time in the whole fleet. A leader has a term, until it stops or loses the leadership."""

from __future__ import annotations

import asyncio
import inspect
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mainspring.client import blocking
from mainspring.common.callables import yields
from mainspring.common.handles import Handle
from mainspring.errors import InvalidOption, UseError, WouldBlockLoop
from mainspring.locks.candidate import Callback, Campaign, ElectionCallbacks
from mainspring.locks.hold import Hold
from mainspring.locks.names import LockName, check_ttl

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration


class Election(Handle):
    """A candidate. Use ``start`` and ``stop``, ``with`` or ``async with``, also in ``app.lifespan``.

    The leadership is renewed in the background while the process lives; after a crash another candidate is elected
    within the ttl. ``elected(term)`` and ``lost(term)`` are called one after the other: a ``def`` in a thread, an
    ``async def`` on the loop of ``async with``, otherwise in a thread too. If ``elected`` still runs when the term
    ends, an ``async def`` is cancelled; a ``def`` continues, and should check ``leader``.
    """

    _INSTEAD = "Call app.election(name) where you need it."
    _PATH = "election"

    def __init__(
        self, app: Mainspring, lock_name: LockName, ttl: Duration, elected: Callback | None, lost: Callback | None
    ) -> None:
        self.name = lock_name.name
        self._app = app
        self._lock_name = lock_name
        self._ttl = check_ttl(ttl, str(lock_name))
        self._callbacks = ElectionCallbacks(
            _check_callback("elected", elected, lock_name), _check_callback("lost", lost, lock_name)
        )
        self._campaign: Campaign | None = None
        self._task: asyncio.Task[None] | None = None

    # ---- use ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Become a candidate until ``stop``. Does not wait for the election, nor for the store."""
        if blocking.in_loop() and not blocking.in_notebook():
            raise WouldBlockLoop("election.start")
        name = f"mainspring-election-{self.name}"
        threading.Thread(target=asyncio.run, args=(self._begin().run(),), name=name, daemon=True).start()

    async def astart(self) -> None:
        """Async version of ``start``: the candidate runs on this event loop."""
        self._task = asyncio.create_task(self._begin().run())

    async def astop(self) -> None:
        """End the candidacy. A leader gives up its term: ``lost`` is called, then another candidate can be elected."""
        if self._campaign is not None:
            await self._campaign.end()

    stop = blocking.twin(astop)

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
        """Whether this candidate leads. False from the moment at which the store may elect another. Asks no store."""
        hold = None if self._campaign is None else self._campaign.hold
        return hold is not None and not hold.lost

    @property
    def term(self) -> int:
        """The fencing token of its last term, larger than the term of every earlier leader; 0 if it never led."""
        return 0 if self._campaign is None else self._campaign.term

    def __repr__(self) -> str:
        return f"<Election {self.name}>"

    # ---- private ------------------------------------------------------------------------------

    def _begin(self) -> Campaign:
        if self._campaign is not None and self._campaign.is_here:
            hint = "Call stop() first, or make another candidate: app.election(name)."
            raise UseError(f"{self._lock_name}: the candidate has been started already", hint=hint)
        self._campaign = Campaign(lambda: Hold(self._app.client, self._lock_name, self._ttl), self._callbacks)
        return self._campaign


def _check_callback(name: str, callback: Any, lock_name: LockName) -> Callback | None:
    """Check that a callback is a function of the term."""
    if callback is None:
        return None
    hint = f"def {name}(term: int) -> None: ..."
    if not callable(callback):
        raise InvalidOption(name, callback, "is not a function", subject=str(lock_name), hint=hint)
    if yields(callback):
        why = "is a generator function, so its body would not run"
        raise InvalidOption(name, callback, why, subject=str(lock_name), hint=hint)
    try:
        inspect.signature(callback).bind(1)
    except TypeError:
        raise InvalidOption(
            name, callback, "must accept one argument, the term", subject=str(lock_name), hint=hint
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return callback  # type: ignore[no-any-return]  # it was given by the user
