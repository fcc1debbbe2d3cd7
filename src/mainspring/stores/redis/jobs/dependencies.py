"""Schedule dependencies: jobs that wait for the success of other schedules. See ``lua/_dependencies.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mainspring.schedules.records import ScheduleDependency, ScheduleDependencyRow
from mainspring.stores.redis import rows
from mainspring.stores.redis.driver.client import RedisClient
from mainspring.stores.shared.constants import DEPENDENTS_SHOWN

SLICE: Final = 1_000
"""Jobs of a schedule that one script releases."""

_pack = msgspec.msgpack.Encoder().encode


async def set_dependencies(client: RedisClient, links: Sequence[ScheduleDependency]) -> None:
    """Store them, and release the jobs that need not wait any more, in slices.

    If the caller stops before the end, the dependencies of such a schedule stay as they were.
    """
    packed = _pack([(each.name, sorted(set(each.after))) for each in links])
    while await client.run("set_dependencies", packed, SLICE):
        pass


async def dependencies(client: RedisClient) -> list[ScheduleDependencyRow]:
    """By name."""
    found = await client.run("dependencies", DEPENDENTS_SHOWN)
    return sorted((_row(*each) for each in found), key=lambda row: row.name)


def _row(name: bytes, after: bytes, missing: list[bytes], waiting: list[bytes]) -> ScheduleDependencyRow:
    succeeded = tuple((each, each.encode() not in missing) for each in rows.unpack_names(after))
    return ScheduleDependencyRow(name=name.decode(), after=succeeded, waiting=tuple(waiting))
