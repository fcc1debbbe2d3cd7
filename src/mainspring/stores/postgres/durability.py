"""What a commit is worth on this server, and what to say when it is worth less than was asked for."""

from __future__ import annotations

import logging

from mainspring.errors import StoreNotDurable
from mainspring.stores.postgres.session import Server

log = logging.getLogger("mainspring.store")


def class_of(server: Server) -> str:
    """``postgres:full`` when commits wait for the disk, ``postgres:normal`` when they need not,
    ``postgres:fsync=off`` when the server never waits for it."""
    if not server.fsync:
        return "postgres:fsync=off"
    return "postgres:normal" if server.commit == "off" else "postgres:full"


def check(server: Server, *, strict: bool, url: str) -> None:
    """Refuse (``strict``) or warn of a server that can lose or damage what it said it had kept."""
    if server.fsync:
        return
    found, hint = "the server runs with fsync = off: a crash of its machine can lose or damage all", "Set fsync = on."
    if strict:
        raise StoreNotDurable(found, url=url, hint=hint)
    log.warning("%s: %s. %s", url, found, hint)
