"""The seats of a run: each has a supervised worker, and a wire to the store that is its alone."""

from __future__ import annotations

import signal
import tempfile
import time
from typing import Any

import msgspec

from mainspring.testing import chaos
from tests.processes.fleet import Fleet, Supervised, kill

TARGET = "tests.soak.flow:app"


class Deed(msgspec.Struct, kw_only=True):
    """What was done to processes, by the wall clock."""

    what: str
    pids: tuple[int, ...]
    began: float
    ended: float


class Seat:
    """One supervised worker; a successor sits down when it has ended."""

    def __init__(self, fleet: Fleet, wire: chaos.Proxy | None, options: dict[str, Any], *, apart: bool) -> None:
        """``apart``: as on another machine, a new one each time: no process can prove its death, so its lease must
        end.
        """
        self.wire = wire
        self.busy = False
        """Something is being done to it."""
        self._fleet = fleet
        self._options = options
        self._apart = apart
        self._supervised: Supervised | None = None
        self._ending: Deed | None = None

    def fill(self) -> None:
        """Start a process in this seat."""
        if self._supervised is not None and self._supervised.popen.poll() is None:
            return
        if self._ending is not None:
            self._ending.ended = time.time()
            self._ending = None
        env = {"MAINSPRING_URL": self.wire.url} if self.wire else {}
        if self._apart:
            env["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="apart-", dir=self._fleet.folder)
        self._supervised = self._fleet.start(target=TARGET, env=env, **self._options)

    @property
    def supervised(self) -> Supervised:
        assert self._supervised is not None
        return self._supervised

    def terminate(self) -> Deed:
        """The word to end; the deed ends when the process has."""
        pids = tuple(self.supervised.worker_pids())
        self._ending = Deed(what="terminated", pids=pids, began=time.time(), ended=time.time())
        self.supervised.signal(signal.SIGTERM)
        return self._ending

    def close(self) -> None:
        if self._supervised is not None and self._supervised.popen.poll() is None:
            self._supervised.signal(signal.SIGTERM)


def signal_all(pids: tuple[int, ...], number: signal.Signals) -> None:
    for pid in pids:
        kill(pid, number)
