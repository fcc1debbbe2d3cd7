"""What is done to a run, drawn from a seed: to processes, to wires, to the store's server, at switches of queues.

The same seed gives the same deeds in the same order; what they hit is up to the machine. One at a time for
each seat, for the store, for the clients, and for the hand at the switches; one seat is always left alone, to be a
witness.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

from mainspring.testing import chaos
from tests.soak.arena import Arena
from tests.soak.crew import Deed, Seat, signal_all
from tests.soak.hand import Hand

STALE = 15.0
"""How long a program may need to see that a half-open connection is dead: its deadline for a call, and then some."""


class Nemesis:
    """``strike`` does the next deed; ``finish`` waits until everything is well again."""

    def __init__(self, arena: Arena, seats: list[Seat], clients: chaos.Proxy | None, seed: int, lease: float) -> None:
        self.deeds: list[Deed] = []
        self.counts: Counter[str] = Counter()
        self.hand = Hand(arena.url)
        self._arena = arena
        self._seats = seats
        self._clients = clients
        self._lease = lease
        self._random = random.Random(seed)
        self._switches = random.Random(seed)
        self._busy: set[str] = set()
        self._under_way: list[threading.Thread] = []
        self._errors: list[Exception] = []

    def strike(self) -> None:
        """One deed; what it would hit may be busy, then none."""
        name = self._random.choice(self._names())
        seat, share = self._random.choice(self._seats), self._random.random()
        deed = getattr(self, f"_{name}")
        whom, _, _ = name.partition("_")
        if whom in ("store", "clients"):
            if whom not in self._busy:
                self._busy.add(whom)
                self._begin(name, lambda: deed(share), lambda: self._busy.discard(whom))
        elif not seat.busy and sum(each.busy for each in self._seats) < len(self._seats) - 1:
            seat.busy = True
            self._begin(name, lambda: deed(seat, share), lambda: setattr(seat, "busy", False))

    def switch(self) -> None:
        """The next deed of the hand at the switches, unless it has one in hand."""
        deed, share = self._switches.choice((self._pauses, self._disables, self._trips)), self._switches.random()
        if "hand" not in self._busy:
            self._busy.add("hand")
            self._begin(deed.__name__[1:], lambda: deed(share), lambda: self._busy.discard("hand"))

    def draw(self, low: float, high: float) -> float:
        """A number of the seed, for pauses."""
        return self._random.uniform(low, high)

    def finish(self) -> None:
        """Until nothing is under way; raises what went wrong in a deed."""
        for thread in self._under_way:
            thread.join()
        self.hand.let_go()
        for error in self._errors:
            raise error

    def _names(self) -> list[str]:
        processes = ["kill_worker", "kill_worker", "kill_both", "kill_supervisor", "stop_worker", "stop_both"]
        processes += ["stop_supervisor", "terminate"]
        if self._arena.server is None:
            return processes
        wires = ["delay", "stall", "long_stall", "cut", "reset", "half_open", "drop_reply", "drop_reply", "throttle"]
        stores = ["store_killed", "store_frozen", "store_ends_connections", "store_ends_connections"]
        return (
            processes + wires + stores + ["clients_unanswered", "clients_unanswered", "clients_cut", "clients_stalled"]
        )

    def _begin(self, name: str, deed: Callable[[], None], free: Callable[[], None]) -> None:
        self.counts[name] += 1
        thread = threading.Thread(target=self._do, args=(deed, free), name=name)
        self._under_way = [each for each in self._under_way if each.is_alive()] + [thread]
        thread.start()

    def _do(self, deed: Callable[[], None], free: Callable[[], None]) -> None:
        try:
            deed()
        except Exception as error:  # noqa: BLE001 - told by `finish`: a deed that failed is no deed
            self._errors.append(error)
        finally:
            free()

    def _note(self, what: str, pids: tuple[int, ...], began: float, ended: float | None = None) -> None:
        self.deeds.append(Deed(what=what, pids=pids, began=began, ended=time.time() if ended is None else ended))

    # ---- to processes -----------------------------------------------------------------------

    def _kill_worker(self, seat: Seat, _: float) -> None:
        self._kill(tuple(seat.supervised.worker_pids()))

    def _kill_both(self, seat: Seat, _: float) -> None:
        self._kill((seat.supervised.pid, *seat.supervised.worker_pids()))

    def _kill(self, pids: tuple[int, ...]) -> None:
        signal_all(pids, signal.SIGKILL)
        self._note("killed", pids, time.time())

    def _kill_supervisor(self, seat: Seat, _: float) -> None:
        """Its workers must hand back and end by themselves."""
        workers = tuple(seat.supervised.worker_pids())
        signal_all((seat.supervised.pid,), signal.SIGKILL)
        now = time.time()
        self._note("terminated", workers, now, now)

    def _terminate(self, seat: Seat, _: float) -> None:
        self.deeds.append(seat.terminate())

    def _stop_worker(self, seat: Seat, share: float) -> None:
        self._stop(tuple(seat.supervised.worker_pids()), share)

    def _stop_both(self, seat: Seat, share: float) -> None:
        self._stop((seat.supervised.pid, *seat.supervised.worker_pids()), share)

    def _stop_supervisor(self, seat: Seat, share: float) -> None:
        """Stop a supervisor for a short time: no job may be affected."""
        signal_all((seat.supervised.pid,), signal.SIGSTOP)
        time.sleep(2 * share * self._lease)
        signal_all((seat.supervised.pid,), signal.SIGCONT)

    def _stop(self, pids: tuple[int, ...], share: float) -> None:
        began = time.time()
        signal_all(pids, signal.SIGSTOP)
        time.sleep((0.3 + 2 * share) * self._lease)
        signal_all(pids, signal.SIGCONT)
        self._note("stopped", pids, began)
        if self._arena.server is None:  # it may have held the file's only lock
            self._note("store_away", (), began)

    # ---- to wires ---------------------------------------------------------------------------

    def _suffer(self, seat: Seat, fault: chaos.Fault, seconds: float, *, after: float | None = None) -> None:
        """A fault on the seat's wire for so long; with ``after`` its workers may fall silent, until so long after."""
        assert seat.wire is not None
        pids, began = tuple(seat.supervised.worker_pids()), time.time()
        with seat.wire.suffering(fault):
            time.sleep(seconds)
        if after is not None:
            self._note("cut_off", (*pids, *seat.supervised.worker_pids()), began, time.time() + after)

    def _delay(self, seat: Seat, share: float) -> None:
        self._suffer(seat, chaos.Delay(0.05 + 0.25 * share), 0.8 * self._lease)

    def _throttle(self, seat: Seat, share: float) -> None:
        self._suffer(seat, chaos.Throttle(50_000), 0.8 * self._lease)

    def _stall(self, seat: Seat, share: float) -> None:
        """Stall the network for less than a lease: no worker may lose its lease."""
        self._suffer(seat, chaos.Stall(), 0.4 * share * self._lease)

    def _long_stall(self, seat: Seat, share: float) -> None:
        self._suffer(seat, chaos.Stall(), (1.2 + share) * self._lease, after=0)

    def _cut(self, seat: Seat, share: float) -> None:
        """After some bytes, each connection anew, on either side."""
        side: chaos.Side = "request" if share < 0.5 else "reply"
        self._suffer(seat, chaos.Cut(1 + int(3000 * share), side), (0.2 + share) * self._lease, after=0)

    def _reset(self, seat: Seat, _: float) -> None:
        self._suffer(seat, chaos.Reset(), 0)

    def _half_open(self, seat: Seat, share: float) -> None:
        self._suffer(seat, chaos.HalfOpen(), (0.2 + share) * self._lease, after=STALE)

    def _drop_reply(self, seat: Seat, share: float) -> None:
        self._suffer(seat, chaos.DropReply(times=1 + int(3 * share)), 0.3 * self._lease)

    def _clients_unanswered(self, share: float) -> None:
        """Their enqueues are done and they do not know."""
        self._clients_suffer(chaos.DropReply(times=1 + int(5 * share)), 0.3 * self._lease)

    def _clients_cut(self, share: float) -> None:
        self._clients_suffer(chaos.Cut(1 + int(2000 * share), "request" if share < 0.5 else "reply"), 1.0)

    def _clients_stalled(self, share: float) -> None:
        self._clients_suffer(chaos.Stall(), share * self._lease)

    def _clients_suffer(self, fault: chaos.Fault, seconds: float) -> None:
        assert self._clients is not None
        with self._clients.suffering(fault):
            time.sleep(seconds)

    # ---- to the store -----------------------------------------------------------------------

    def _store_killed(self, share: float) -> None:
        assert self._arena.server is not None
        began = time.time()
        self._arena.server.kill()
        time.sleep(3 * share)
        self._arena.server.start()
        self._note("store_away", (), began)

    def _store_frozen(self, share: float) -> None:
        """Freeze the store, often for longer than a lease: no heartbeat arrives, so no worker is rescued."""
        assert self._arena.server is not None
        began = time.time()
        self._arena.server.freeze()
        time.sleep((0.2 + 1.3 * share) * self._lease)
        self._arena.server.thaw()
        self._note("store_away", (), began)

    def _store_ends_connections(self, _: float) -> None:
        self._arena.end_connections()

    # ---- at the switches --------------------------------------------------------------------

    def _pauses(self, share: float) -> None:
        self.hand.pause((0.2 + share) * self._lease)

    def _disables(self, share: float) -> None:
        self.hand.disable((0.2 + share) * self._lease)

    def _trips(self, _: float) -> None:
        self.hand.trip()
