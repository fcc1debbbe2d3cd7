"""One schema of a database, as the feature modules use it: statements, the clock, wake-ups, opening and closing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import psycopg

from mainspring.common.clock import Clock
from mainspring.stores.postgres.driver import migrations
from mainspring.stores.postgres.driver.durability import check_durability
from mainspring.stores.postgres.driver.session import Params, Rows, Sessions, Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.driver.wakeups import NOTIFY, ListenerHub, Notifier, PostgresListener

_NONE: Mapping[str, Any] = MappingProxyType({})


class Database:
    """The first argument of every function of the engine: where the statements run, at which time, and which
    listeners are woken afterwards."""

    def __init__(
        self, sessions: Sessions, schema: str, url: str, *, clock: Clock | None, strict: bool, hub: ListenerHub
    ) -> None:
        self.sessions = sessions
        self.schema = schema
        self.url = url
        """Masked, for messages."""
        self.clock = clock
        self.notifier = Notifier(schema)
        self.is_checked = False
        """Whether the version of the schema is known to be good. A program that only enqueues opens nothing."""
        self._strict = strict
        self._hub = hub

    async def open(self) -> None:
        """Connect, and check the version of the schema and the durability of the server."""
        if not await self.sessions.open():
            return
        try:
            await migrations.check_version(self.sessions.rows, self.schema, self.url)
            check_durability(self.sessions.server, strict=self._strict, url=self.url)
        except BaseException:
            await self.sessions.close()
            raise
        self.is_checked = True

    async def close(self) -> None:
        self._hub.close()
        self.is_checked = False
        await self.sessions.close()

    def check_now(self) -> None:
        """Check the version of the schema once, blocking."""
        if not self.is_checked:
            migrations.check_version_now(self.sessions.rows_now, self.schema, self.url)
            self.is_checked = True

    async def rows(
        self, text: str, params: Params = _NONE, *, prepare: bool | None = None, first: Sequence[Step] = ()
    ) -> Rows:
        """Run one statement; ``{schema}`` in it stands for the schema. See :meth:`Sessions.rows`."""
        return await self.sessions.rows(fill_schema(text, self.schema), params, prepare=prepare, first=first)

    async def run(self, call: Step) -> Rows:
        """Run a statement that is complete."""
        return await self.sessions.rows(*call)

    async def query(self, call: Step | None) -> Rows:
        """Run a query whose plan depends on its values: it is never prepared. None has no rows."""
        return [] if call is None else await self.sessions.rows(*call, prepare=False)

    def now(self) -> int | None:
        """The time of a test's clock in microseconds; None: the server's clock."""
        return None if self.clock is None else self.clock.now_us()

    async def read_time(self) -> int:
        """The time of the store, in microseconds."""
        ((now,),) = await self.rows("select {schema}.now_v1(%(now)s::bigint)", {"now": self.now()})
        return int(now)

    async def wake(self, queues: Iterable[str]) -> None:
        """Wake listeners of these queues, after the commit. A queue that was notified a moment ago is left out."""
        await self.send_notifications(self.notifier.take_due(queues))

    async def notify(self, queues: Iterable[str]) -> None:
        """Wake listeners of these queues in any case, and raise an error of the server."""
        await self.sessions.rows(NOTIFY, {"channels": self.notifier.channels(queues)})

    async def listen(self, queues: Iterable[str]) -> PostgresListener:
        """A listener of these queues."""
        return await self._hub.listen(queues)

    async def send_notifications(self, channels: list[str]) -> None:
        """Notify these channels. An error is ignored: listeners poll as well."""
        if channels:
            with suppress(psycopg.Error):
                await self.sessions.rows(NOTIFY, {"channels": channels})
