"""The bare driver: what redis-py and asyncio cost without a queue around them. No recovery, no retries, nothing.

Run as a program it drains: the ack of a batch and the claim of the next in one script. When there is nothing it
blocks on the list, moving its head onto itself, so that no job can be lost on the way.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Sequence

import redis
import redis.asyncio

from benchmarks.programs import produce
from benchmarks.programs.bodies import BATCH, body, run

TURN = """
if #ARGV > 1 then redis.call('hdel', 'running', unpack(ARGV, 2)) end
local claimed = redis.call('lpop', 'ready', ARGV[1])
if not claimed then return {} end
local last = redis.call('hincrby', 'meta', 'last', #claimed)
local running = {}
for i, body in ipairs(claimed) do
    running[2 * i - 1] = last - #claimed + i
    running[2 * i] = body
end
redis.call('hset', 'running', unpack(running))
return running
"""


@functools.cache
def connect() -> redis.Redis:
    return redis.Redis.from_url(os.environ["BENCH_STORE"])


@functools.cache
def aconnect() -> redis.asyncio.Redis:
    return redis.asyncio.Redis.from_url(os.environ["BENCH_STORE"])


def one(task: str, n: int) -> None:
    """One command."""
    connect().rpush("ready", body(task, n))


def many(task: str, numbers: Sequence[int]) -> None:
    """One command."""
    connect().rpush("ready", *[body(task, n) for n in numbers])


async def aone(task: str, n: int) -> None:
    """One command on a connection of the pool: nothing is shared with other producers."""
    await aconnect().rpush("ready", body(task, n))


async def drain() -> None:
    client = aconnect()
    turn = client.register_script(TURN)
    loop = asyncio.get_running_loop()
    done: list[int] = []
    while True:
        found = await turn(args=[BATCH, *done])
        done, bodies = found[::2], found[1::2]
        if not done:
            await client.blmove("ready", "ready", 1, "LEFT", "LEFT")
        await asyncio.gather(*[loop.create_task(run(data)) for data in bodies])


if __name__ == "__main__":
    produce.run(drain())
