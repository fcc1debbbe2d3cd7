"""The part of an app that has to do with locks: what is declared, and where they are seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration
    from mainspring.locks.candidate import Callback
    from mainspring.locks.election import Election
    from mainspring.locks.lock import Lock, OnBusy
    from mainspring.locks.manager import Locks


class LockDeclarations:
    """Locks, semaphores and elections of the app that it is part of."""

    _semaphores: dict[str, int]

    def lock(
        self, name: str, *, ttl: Duration = "30s", wait: Duration | None = None, on_busy: OnBusy = "raise"
    ) -> Lock:
        """A lock for any code, in the whole fleet: ``with``, ``async with``, decorator, ``acquire`` and ``release``.

        Renewed while its process lives; after a crash it is free within ``ttl``. One that is held is waited for as long
        as ``wait`` says; then ``LockBusy`` is raised, or what it guards is skipped.
        """
        from mainspring.locks.lock import Lock
        from mainspring.locks.names import LockName, checked_name

        return Lock(self._app, LockName("lock", checked_name("lock", name)), ttl, wait, on_busy)

    def semaphore(
        self, name: str, size: int, *, ttl: Duration = "30s", wait: Duration | None = None, on_busy: OnBusy = "raise"
    ) -> Lock:
        """A lock that ``size`` may hold at once, in the whole fleet."""
        from mainspring.locks.lock import Lock
        from mainspring.locks.names import LockName, checked_name, checked_size

        spot = LockName("semaphore", checked_name("semaphore", name), checked_size(size, f"semaphore {name!r}"))
        return Lock(self._app, spot, ttl, wait, on_busy).told_to(self._semaphores)

    def election(
        self, name: str, *, elected: Callback | None = None, lost: Callback | None = None, ttl: Duration = "30s"
    ) -> Election:
        """A candidate for the lead of the fleet: ``start`` and ``stop``, ``with`` and ``async with``.

        ``elected(term)`` and ``lost(term)`` are called when it becomes the leader and when it is not any more.
        """
        from mainspring.locks.election import Election
        from mainspring.locks.names import LockName, checked_name

        return Election(self._app, LockName("election", checked_name("election", name)), ttl, elected, lost)

    @property
    def locks(self) -> Locks:
        """Which locks are held, and by whom."""
        from mainspring.locks.manager import Locks

        return Locks(self._app)

    @property
    def _app(self) -> Mainspring:
        return cast("Mainspring", self)
