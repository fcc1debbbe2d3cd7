"""Scripts and commands on the connections of this process: one for each event loop, a few for threads.

A call is one EVALSHA. The server that does not know the script says so before anything runs, so
that alone is repeated here, with the whole text. After a timeout nobody knows whether the script
ran: the caller repeats by the contract's rules, never this module.

Where a call is confirmed, the repeat would stand behind a wait for the confirmation of nothing, and a
caller with little time would never be heard: there each connection says the whole text first.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from mainspring.common.clock import Clock
from mainspring.errors import StoreUnavailable, mask_url

from . import address, wire
from .confirm import Confirm
from .line import Line
from .loops import OfLoop, Shared
from .resp import ServerError, check, pack
from .scripts import script
from .wire import Wire

TIMEOUT = 10.0
"""Seconds for a blocking call; the door holds the others to its own deadline."""

IDLE = 16
"""How many connections of threads are kept for their next calls."""

_MOVED_AWAY = ("READONLY You", "MASTERDOWN")  # of a script before Redis 7 not at the beginning


class Connection:
    """Runs scripts under one meta key, and the few plain commands that need none."""

    def __init__(self, url: str, meta: str, clock: Clock | None, confirm: Confirm | None = None) -> None:
        self.url = mask_url(url)
        self.address = address.parse(url)
        self._meta = meta
        self._clock = clock
        self._confirm = confirm or Confirm(meta)
        self._closed = False
        self._pid = os.getpid()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, OfLoop] = WeakKeyDictionary()
        self._idle: list[Line] = []
        self._inherited: list[Any] = []

    # ---- life ---------------------------------------------------------------------------------

    def reopen(self) -> None:
        self._closed = False

    async def close(self) -> None:
        """Close what this process and this loop opened. Connections of other loops go with their loop."""
        self._closed = True
        self._leave_to_parent()
        mine = self._loops.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.close()
        while self._idle:
            self._idle.pop().close()

    def _leave_to_parent(self) -> None:
        """After a fork: keep the parent's handles, unused. To close or collect them would be heard by the server."""
        if os.getpid() == self._pid:
            return
        self._pid = os.getpid()
        self._inherited += [self._loops, self._idle]
        self._loops, self._idle = WeakKeyDictionary(), []

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed", url=self.url, hint="Open it again before you use it.")
        self._leave_to_parent()

    # ---- calls of an event loop ---------------------------------------------------------------

    async def command(self, *words: bytes | str | int) -> Any:
        """One plain command; its reply as the server gives it, but a whole hash is a dict."""
        reply = await self._call(self._mine().plain, pack(words))
        return dict(zip(reply[::2], reply[1::2], strict=True)) if words[0] == "HGETALL" else reply

    async def ask(self, commands: Sequence[tuple[bytes | str | int, ...]]) -> list[Any]:
        """Several plain commands in one write; errors of the server are among the replies."""
        ours = await self._mine().plain.ready()
        return [await reply for reply in [ours.send(pack(words)) for words in commands]]

    async def run(self, name: str, *arguments: bytes | str | int) -> Any:
        """Run a script: one round trip, one atomic step."""
        mine, confirmed = self._mine(), self._confirm.is_wanted(name)
        shared = mine.confirmed if confirmed else mine.plain
        verb = _verb(await shared.ready(), name) if confirmed else "EVALSHA"
        try:
            return await self._call(shared, self._packed(verb, name, arguments), confirmed)
        except ServerError as error:
            if error.code != "NOSCRIPT":
                raise
            return await self._call(shared, self._packed("EVAL", name, arguments), confirmed)

    async def own_wire(self) -> Wire:
        """A connection for one caller alone, that blocks in its calls. It ends with the store, or by its user."""
        mine, own = self._mine(), await wire.connect(self.address)
        mine.lent.add(own)
        return own

    def send_off(self, name: str, *arguments: bytes | str | int) -> None:
        """Run a script whose reply nobody waits for, if there is a connection."""
        mine = self._loops.get(asyncio.get_running_loop())
        if mine is not None and mine.plain.wire is not None and not mine.plain.wire.lost:
            mine.plain.wire.send(self._packed("EVAL", name, arguments))  # nobody would hear that it is not known

    async def _call(self, shared: Shared, packed: bytes, confirmed: bool = False) -> Any:
        ours = await shared.ready()
        try:
            if not confirmed:
                return await ours.call(packed)
            reply, confirmations = await ours.call_confirmed(packed)
        except ServerError as error:
            if _has_moved(error):  # a failover: the address may lead elsewhere by now
                ours.abort()
            raise
        self._confirm.check(confirmations, self.url)
        return reply

    def _mine(self) -> OfLoop:
        self._check()
        loop = asyncio.get_running_loop()
        mine = self._loops.get(loop)
        if mine is None:
            mine = self._loops[loop] = OfLoop(self.address, self._confirm.commands, self._loops)
        return mine

    # ---- calls of a thread --------------------------------------------------------------------

    def run_now(self, name: str, *arguments: bytes | str | int) -> Any:
        """The same as :meth:`run`, blocking, in the calling thread."""
        self._check()
        until, confirmed = time.monotonic() + TIMEOUT, self._confirm.is_wanted(name)
        line = self._line(until)
        try:
            verb = _verb(line, name) if confirmed else "EVALSHA"
            reply, *confirmations = self._call_now(line, verb, name, arguments, until, confirmed)
            if isinstance(reply, ServerError) and reply.code == "NOSCRIPT":
                reply, *confirmations = self._call_now(line, "EVAL", name, arguments, until, confirmed)
        except BaseException:
            line.close()
            raise
        self._put_back(line, reply)
        check(reply)
        if confirmed:
            self._confirm.check([check(each) for each in confirmations], self.url)
        return reply

    def ask_now(self, commands: Sequence[tuple[bytes | str | int, ...]]) -> list[Any]:
        """The same as :meth:`ask`, blocking."""
        self._check()
        until = time.monotonic() + TIMEOUT
        line = self._line(until)
        try:
            replies = line.call(b"".join(map(pack, commands)), len(commands), until)
        except BaseException:
            line.close()
            raise
        self._put_back(line, None)
        return replies

    def _call_now(
        self, line: Line, verb: str, name: str, arguments: tuple[bytes | str | int, ...], until: float, confirmed: bool
    ) -> list[Any]:
        more = self._confirm.commands if confirmed else ()
        return line.call(self._packed(verb, name, arguments) + b"".join(more), 1 + len(more), until)

    def _line(self, until: float) -> Line:
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if line.is_fresh():
                return line
            line.close()
        return Line(self.address, until)

    def _put_back(self, line: Line, reply: Any) -> None:
        if _has_moved(reply) or self._closed or len(self._idle) >= IDLE:
            line.close()
        else:
            self._idle.append(line)

    def _packed(self, verb: str, name: str, arguments: tuple[bytes | str | int, ...]) -> bytes:
        wanted = script(name)
        now = "" if self._clock is None else self._clock.now_us()
        return pack((verb, wanted.sha if verb == "EVALSHA" else wanted.text, 1, self._meta, now, *arguments))


def _verb(link: Wire | Line, name: str) -> str:
    """How to call a script on a connection that may be the first to speak of it to this server."""
    if name in link.told:
        return "EVALSHA"
    link.told.add(name)
    return "EVAL"


def _has_moved(reply: object) -> bool:
    """Whether the server is no primary any more."""
    return isinstance(reply, ServerError) and any(sign in str(reply) for sign in _MOVED_AWAY)
