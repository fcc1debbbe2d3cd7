"""Which durability the commits of this server have, and the warning if it is less than the promise."""

from __future__ import annotations

import logging

from mainspring.errors import StoreNotDurable
from mainspring.stores.postgres.driver.session import ServerSettings

log = logging.getLogger("mainspring.store")


def durability_class(server: ServerSettings) -> str:
    """``postgres:full`` when commits wait for the disk, ``postgres:normal`` when they do not,
    ``postgres:fsync=off`` when the server never waits for the disk."""
    if not server.fsync:
        return "postgres:fsync=off"
    return "postgres:normal" if server.commit == "off" else "postgres:full"


def check_durability(server: ServerSettings, *, strict: bool, url: str) -> None:
    """Refuse (``strict``) or warn about a server that can lose or damage data that it has confirmed."""
    if server.fsync:
        return
    found, hint = (
        "the server runs with fsync = off: a crash of its machine can lose or damage all data",
        "Set fsync = on.",
    )
    if strict:
        raise StoreNotDurable(found, url=url, hint=hint)
    log.warning("%s: %s. %s", url, found, hint)
