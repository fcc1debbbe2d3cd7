"""Progress, log lines and stream items of running attempts, and the rows of ended attempts."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import msgspec

from mainspring.jobs.records import AttemptReport, AttemptRow, LogLine
from mainspring.stores.redis import rows
from mainspring.stores.redis.driver.client import RedisClient
from mainspring.stores.redis.rows import moment
from mainspring.stores.shared.constants import LINES_KEPT

_pack = msgspec.msgpack.Encoder().encode
_line = msgspec.msgpack.Decoder(tuple[int, str, str]).decode
_number = Struct(">d").unpack_from


async def report(client: RedisClient, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
    words: list[bytes | str | int] = [worker]
    for each in reports:
        lines = [_pack((line.at, line.level, _replace_surrogates(line.text))) for line in each.logs[-LINES_KEPT:]]
        items = [moment(n) + data for n, data in dict(each.items).items()]
        progress = b"" if each.progress is None else b"+" + each.progress
        words += (each.id + moment(each.token), progress, len(each.logs), len(lines), len(items), *lines, *items)
    return [stored == 1 for stored in await client.run("report", *words)]


def _replace_surrogates(text: str) -> str:
    """A lone surrogate cannot be stored."""
    return text.encode("utf-8", "replace").decode("utf-8")


async def attempts(client: RedisClient, job: bytes) -> list[AttemptRow]:
    return [rows.attempt_row(entry) for entry in await client.command("LRANGE", client.job_key("attempts", job), 0, -1)]


async def logs(client: RedisClient, job: bytes, after: int) -> list[LogLine]:
    lines = []
    for entry in await client.command("LRANGE", client.job_key("logs", job), 0, -1):
        (n,) = _number(entry)
        if n > after:
            lines.append(LogLine(*_line(entry[8:]), int(n)))
    return lines


async def items(client: RedisClient, job: bytes, after: int, limit: int) -> list[tuple[int, bytes]]:
    key = client.job_key("items", job)
    members = await client.command("ZRANGEBYSCORE", key, f"({after}", "+inf", "LIMIT", 0, max(limit, 0))
    return [(int(_number(member)[0]), member[8:]) for member in members]
