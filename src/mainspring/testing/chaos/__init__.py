"""A proxy between a program and its store that injects network faults when a test asks for them.

>>> from mainspring.testing import chaos, servers
>>> with servers.valkey(own=True) as server, chaos.Proxy(server.url) as wire:   # doctest: +SKIP
...     app = Mainspring(wire.url)
...     wire.set(chaos.Stall())         # no bytes pass, and no error is raised
...     wire.heal()                     # the delayed bytes arrive

A fault stays until `Proxy.heal` or the next `Proxy.set`. It applies to every connection, also to connections that are
made meanwhile, or only to the named links. The proxy has a thread of its own, so it serves blocking and async tests
alike, and goes on while the test's own loop is blocked. It needs no rights and speaks no protocol: bytes in, bytes out.
"""

from mainspring.testing.chaos._faults import Cut, Delay, DropReply, Fault, HalfOpen, Reset, Stall, Throttle
from mainspring.testing.chaos._link import ProxiedConnection, Side
from mainspring.testing.chaos._proxy import Proxy

__all__ = [
    "Cut",
    "Delay",
    "DropReply",
    "Fault",
    "HalfOpen",
    "ProxiedConnection",
    "Proxy",
    "Reset",
    "Side",
    "Stall",
    "Throttle",
]
