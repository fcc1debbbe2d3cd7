"""Runs scripts and commands on the connections of this process: two for each event loop, a few for threads.

A call is one EVALSHA. A server that does not know the script refuses before anything runs, so only this case is
repeated here, with the whole text (EVAL). After a timeout it is unknown whether the script ran: this module never
repeats such a call. The caller repeats it by the rules of the contract. A call that only reads is repeated once, on a
new connection, if its connection was lost.

A confirmed call that needs a repeat would first wait for the confirmation of nothing, and a caller with a short
deadline would never get a reply. Therefore a connection for confirmed calls sends the whole text the first time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from mainspring.common.clock import Clock
from mainspring.errors import StoreUnavailable, mask_url
from mainspring.stores.shared.deadlines import blocking_deadline

from . import address, catalogue, loop_connection
from .confirm import READS, WriteConfirmation
from .loop_connection import LoopConnection
from .open_connections import OpenConnections, SharedConnection
from .resp import ConnectionBroken, ServerError, check, pack
from .scripts import script
from .thread_connection import ThreadConnection

TIMEOUT = 10.0
"""Seconds for a blocking call. Calls of an event loop have the deadline of :class:`mainspring.stores.door.Door`."""

IDLE = 16
"""Connections of threads that are kept open for the next calls."""

_NOT_PRIMARY = ("READONLY You", "MASTERDOWN")  # before Redis 7 an error of a script does not begin with these words


class RedisClient:
    """Runs the scripts of one namespace, and the few plain commands that need no script."""

    def __init__(
        self, url: str, namespace: str, clock: Clock | None, *, replicas: int = 0, wait_fsync: bool = False
    ) -> None:
        self.url = mask_url(url)
        self.address = address.parse(url)
        self._tag = catalogue.tag(namespace)
        self._meta = self.key("meta")
        self._clock = clock
        self._confirm = WriteConfirmation(self._meta, replicas, wait_fsync)
        self._closed = False
        self._pid = os.getpid()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, OpenConnections] = WeakKeyDictionary()
        self._idle: list[ThreadConnection] = []
        self._inherited: list[Any] = []

    def key(self, name: str, of: str | None = None) -> str:
        """The full name of a key of the catalogue; ``of`` is what follows the colon."""
        return self._tag + name if of is None else f"{self._tag}{name}:{of}"

    def job_key(self, name: str, job: bytes) -> bytes:
        """The full name of a key of the catalogue that belongs to one job."""
        return self.key(name).encode() + b":" + job

    # ---- life ---------------------------------------------------------------------------------

    def reopen(self) -> None:
        self._closed = False

    async def close(self) -> None:
        """Close the connections of threads and of this loop. Those of another loop are closed when that loop ends."""
        self._closed = True
        self._leave_to_parent()
        mine = self._loops.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.close()
        while self._idle:
            self._idle.pop().close()

    def _leave_to_parent(self) -> None:
        """After a fork: keep the connections of the parent, unused. To close or collect them would reach the server."""
        if os.getpid() == self._pid:
            return
        self._pid = os.getpid()
        self._inherited += [self._loops, self._idle]
        self._loops, self._idle = WeakKeyDictionary(), []

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed", url=self.url, hint="Open the store again before you use it.")
        self._leave_to_parent()

    # ---- calls of an event loop ---------------------------------------------------------------

    async def command(self, *words: bytes | str | int) -> Any:
        """One plain command that only reads, and its reply. The reply to HGETALL is a dict."""
        reply = await self._call(self._mine().plain, pack(words), safe=True)
        return dict(zip(reply[::2], reply[1::2], strict=True)) if words[0] == "HGETALL" else reply

    async def now(self) -> int:
        """The time of the store in microseconds: a test's clock, or the server's clock."""
        if self._clock is not None:
            return self._clock.now_us()
        seconds, microseconds = await self.command("TIME")
        return int(seconds) * 1_000_000 + int(microseconds)

    async def ask(self, commands: Sequence[tuple[bytes | str | int, ...]]) -> list[Any]:
        """Several plain commands in one write. Errors of the server are returned among the replies."""
        ours = await self._mine().plain.ready()
        return [await reply for reply in [ours.send(pack(words)) for words in commands]]

    async def run(self, name: str, *arguments: bytes | str | int) -> Any:
        """Run a script: one round trip, one atomic step."""
        mine, confirmed, safe = self._mine(), self._confirm.is_wanted(name), name in READS
        shared = mine.confirmed if confirmed else mine.plain
        verb = _verb(await shared.ready(), name) if confirmed else "EVALSHA"
        try:
            return await self._call(shared, self._packed(verb, name, arguments), confirmed, safe=safe)
        except ServerError as error:
            if error.code != "NOSCRIPT":
                raise
            return await self._call(shared, self._packed("EVAL", name, arguments), confirmed, safe=safe)

    async def own_connection(self) -> LoopConnection:
        """A connection for one caller that blocks in its calls, until the caller or the store closes it."""
        mine, own = self._mine(), await loop_connection.connect(self.address)
        mine.lent.add(own)
        return own

    def send_off(self, name: str, *arguments: bytes | str | int) -> None:
        """Run a script without waiting for its reply. Does nothing if there is no open connection."""
        mine = self._loops.get(asyncio.get_running_loop())
        if mine is not None and mine.plain.open is not None:
            # EVAL: with EVALSHA an unknown script would be an error that no caller sees.
            mine.plain.open.send(self._packed("EVAL", name, arguments))

    async def _call(
        self, shared: SharedConnection, packed: bytes, confirmed: bool = False, *, safe: bool = False
    ) -> Any:
        """``safe``: the call only reads, so it is repeated once if its connection is lost."""
        ours = await shared.ready()
        try:
            return await self._call_on(ours, packed, confirmed)
        except ConnectionBroken:
            if not safe or self._closed:
                raise
        return await self._call_on(await shared.ready(), packed, confirmed)

    async def _call_on(self, ours: LoopConnection, packed: bytes, confirmed: bool) -> Any:
        try:
            if not confirmed:
                return await ours.call(packed)
            reply, confirmations = await ours.call_confirmed(packed)
        except ServerError as error:
            if is_not_primary(error):  # a failover: the address may lead to another server now
                ours.abort()
            raise
        self._confirm.check(confirmations, self.url)
        return reply

    def _mine(self) -> OpenConnections:
        self._check()
        loop = asyncio.get_running_loop()
        mine = self._loops.get(loop)
        if mine is None:
            mine = self._loops[loop] = OpenConnections(self.address, self._confirm.commands, self._loops)
        return mine

    # ---- calls of a thread --------------------------------------------------------------------

    def run_now(self, name: str, *arguments: bytes | str | int) -> Any:
        """Run a script, blocking, in the calling thread: see :meth:`run`."""
        self._check()
        until, confirmed = blocking_deadline.after(TIMEOUT), self._confirm.is_wanted(name)
        connection = self._thread_connection(until)
        try:
            verb = _verb(connection, name) if confirmed else "EVALSHA"
            reply, *confirmations = self._call_now(connection, verb, name, arguments, until, confirmed)
            if isinstance(reply, ServerError) and reply.code == "NOSCRIPT":
                reply, *confirmations = self._call_now(connection, "EVAL", name, arguments, until, confirmed)
        except BaseException:
            connection.close()
            raise
        self._put_back(connection, reply)
        check(reply)
        if confirmed:
            self._confirm.check([check(each) for each in confirmations], self.url)
        return reply

    def ask_now(self, commands: Sequence[tuple[bytes | str | int, ...]]) -> list[Any]:
        """Several plain commands, blocking: see :meth:`ask`."""
        self._check()
        until = blocking_deadline.after(TIMEOUT)
        connection = self._thread_connection(until)
        try:
            replies = connection.call(b"".join(map(pack, commands)), len(commands), until)
        except BaseException:
            connection.close()
            raise
        self._put_back(connection, None)
        return replies

    def _call_now(
        self,
        connection: ThreadConnection,
        verb: str,
        name: str,
        arguments: tuple[bytes | str | int, ...],
        until: float,
        confirmed: bool,
    ) -> list[Any]:
        more = self._confirm.commands if confirmed else ()
        return connection.call(self._packed(verb, name, arguments) + b"".join(more), 1 + len(more), until)

    def _thread_connection(self, until: float) -> ThreadConnection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.is_fresh():
                return connection
            connection.close()
        return ThreadConnection(self.address, until)

    def _put_back(self, connection: ThreadConnection, reply: Any) -> None:
        if is_not_primary(reply) or self._closed or len(self._idle) >= IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def _packed(self, verb: str, name: str, arguments: tuple[bytes | str | int, ...]) -> bytes:
        wanted = script(name)
        now = "" if self._clock is None else self._clock.now_us()
        return pack((verb, wanted.sha if verb == "EVALSHA" else wanted.text, 1, self._meta, now, *arguments))


def _verb(connection: LoopConnection | ThreadConnection, name: str) -> str:
    """EVAL for the first call of a script on a connection, else EVALSHA."""
    if name in connection.known_scripts:
        return "EVALSHA"
    connection.known_scripts.add(name)
    return "EVAL"


def is_not_primary(reply: object) -> bool:
    """Whether the server says that it is not the primary any more."""
    return isinstance(reply, ServerError) and any(sign in str(reply) for sign in _NOT_PRIMARY)
