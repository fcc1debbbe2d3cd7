"""What a name as the identity of a lane costs, and what would be in its place. The figures of decision 55.

``python -m benchmarks.lane_cost --store postgres [--part lanes] [--size 100]``

| part | what takes turns |
|---|---|
| lanes | bare statements: jobs with the name of their lane, and with a number that stands for a row |
| sizes | the space of the same jobs: 1,000,000 of them, in one lane and in 10,000 lanes |
| limits | the store itself: jobs without a limit, with an unkeyed limit, and with a limit of one key |
| counts | bare statements: ways to count the running jobs of an unkeyed limit (SQLite, Redis) |
| fields | bare Lua: the fields of 100 lanes, from the name and from a stored hash (Redis); a job is one lane |

Candidates take turns on one server or in one file, so a busy machine changes the figures of a round for all of them.
Each figure is processor time in us for each job, p10 and median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import redis

from benchmarks import places
from benchmarks.enqueue_cost import server_time
from benchmarks.frame import ENGINES
from benchmarks.places import Place
from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.records import JobBatch, NewJob
from mainspring.limits.records import Bucket, Limit
from mainspring.stores.connect import StoreAddress, connect_to
from mainspring.worker.records import Beat, Registration, Turn, Want

LANE = "email/async"
CLAIMED = 64
RECORD = b'{"args":["user@example.com"],"kwargs":{"subject":"welcome"}}' * 2
_ids = count(1)


class Phases(NamedTuple):
    """Work for ``n`` jobs, in parts that are measured apart."""

    insert: Callable[[int], Any]
    rest: Callable[[int], Any]
    """Claim and delete."""
    prepare: Callable[[], Any] = lambda: None
    """Done before each round, not measured."""


class Cost(NamedTuple):
    """Microseconds for one job."""

    client: float
    server: float


# ---- rounds ------------------------------------------------------------------------------------------------


def measure(candidates: dict[str, Phases], place: Place, n: int, rounds: int) -> None:
    """Print what each phase of each candidate costs."""
    costs: dict[tuple[str, str], list[Cost]] = {}
    for number in range(rounds + 1):
        for name in list(candidates) if number % 2 else reversed(candidates):
            candidate = candidates[name]
            candidate.prepare()
            for phase, work in (("insert", candidate.insert), ("rest", candidate.rest)):
                if work is _nothing:
                    continue
                server, client = server_time(place), time.process_time()
                work(n)
                used = Cost((time.process_time() - client) / n * 1e6, (server_time(place) - server) / n * 1e6)
                if number:  # the first round warms up
                    costs.setdefault((name, phase), []).append(used)
    for (name, phase), found in costs.items():
        columns = zip(Cost._fields, zip(*found, strict=True), strict=True)
        shown = [f"{title} {_show(each)}" for title, each in columns]
        print(f"  {name:28} {phase:7}", "   ".join(shown), flush=True)


def _show(values: Sequence[float]) -> str:
    return f"{sorted(values)[len(values) // 10]:6.2f} ({statistics.median(values):6.2f})"


def _show_size(lanes: int, kind: str, rows: int, index: int) -> None:
    print(f"  {lanes:6} lanes, {kind:7} table {rows / 1e6:6.1f} MB   ready index {index / 1e6:6.1f} MB", flush=True)


def _nothing(*_: object) -> None:
    """A phase without work."""


def job_ids(n: int) -> list[bytes]:
    return [next(_ids).to_bytes(16) for _ in range(n)]


def slices(n: int, size: int) -> Iterator[int]:
    for start in range(0, n, size):
        yield min(size, n - start)


# ---- PostgreSQL --------------------------------------------------------------------------------------------

PG_TABLE = """
create sequence if not exists seq;
create table if not exists lanes (id int generated always as identity primary key, name text collate "C" unique);
insert into lanes (name) values ('email/async') on conflict do nothing;
create table {table} (
    seq bigint not null, token bigint not null default 0, priority integer not null default 0, id bytea primary key,
    state text not null default 'ready', home {type} not null, lane {type} not null, record bytea not null
) with (fillfactor = 70, autovacuum_enabled = off);
create index {table}_ready on {table} (lane, priority desc, seq) where state = 'ready';
"""
PG_INSERT = """
insert into {table} (seq, id, home, lane, record)
select nextval('seq'), u.id, l.lane, l.lane, u.record from unnest(%b::bytea[], %b::bytea[]) as u(id, record), {lane} l
"""
PG_LANES = {
    "text": "(select %b::text as lane)",
    "number": "(select %b::int as lane)",
    "number looked up": "(select id as lane from lanes where name = %b)",
    "number, row locked": "(select id as lane from lanes where id = %b for key share)",
}
PG_CLAIM = """
update {table} j set state = 'running', token = 1 where ctid = any(array(
    select ctid from {table} where state = 'ready' and lane = {lane} order by priority desc, seq limit 64
    for update skip locked
)) returning id, lane, record
"""


class PgLanes:
    """One way to say the lane, in a table of its own."""

    def __init__(self, place: Place, kind: str, size: int, producers: int = 1) -> None:
        self._table = "jobs_" + kind.replace(" ", "_").replace(",", "") + (f"_{producers}" if producers > 1 else "")
        self._links = [psycopg.connect(place.address, autocommit=True, prepare_threshold=0) for _ in range(producers)]
        column = 'text collate "C"' if kind == "text" else "int"
        self._links[0].execute(PG_TABLE.format(table=self._table, type=column), prepare=False)
        self._insert = PG_INSERT.format(table=self._table, lane=PG_LANES[kind])
        looked = "(select id from lanes where name = %b)" if kind == "number looked up" else "%b"
        self._claim = PG_CLAIM.format(table=self._table, lane=looked)
        self._lane = LANE if kind in ("text", "number looked up") else 1
        self._size = size

    def phases(self) -> Phases:
        return Phases(self.insert if len(self._links) == 1 else self.insert_together, self.rest, self.prepare)

    def insert(self, n: int) -> None:
        for each in slices(n, self._size):
            self._links[0].execute(self._insert, (job_ids(each), [RECORD] * each, self._lane))

    def insert_together(self, n: int) -> None:
        """Each transaction overlaps with the one before it, as with busy producers."""
        links = self._links
        links[1].execute("begin")
        for number, each in enumerate(slices(n, self._size)):
            links[number % 2].execute("begin")
            links[number % 2].execute(self._insert, (job_ids(each), [RECORD] * each, self._lane))
            links[(number + 1) % 2].execute("commit")
        for link in links:
            link.execute("rollback" if link.info.transaction_status == 0 else "commit")

    def rest(self, n: int) -> None:
        for _ in slices(n, CLAIMED):
            cursor = self._links[0].cursor(binary=True)
            claimed = cursor.execute(self._claim, (self._lane,)).fetchall()
            cursor.execute(f"delete from {self._table} where id = any(%b)", ([row[0] for row in claimed],))  # noqa: S608

    def prepare(self) -> None:
        self._links[0].execute(f"vacuum {self._table}", prepare=False)


def pg_lanes(place: Place, size: int) -> dict[str, Phases]:
    found = {kind: PgLanes(place, kind, size).phases() for kind in PG_LANES}
    together = ("number", "number, row locked")
    return found | {f"{kind}, 2 producers": PgLanes(place, kind, size, 2).phases() for kind in together}


def pg_sizes(place: Place, jobs: int) -> None:
    with psycopg.connect(place.address, autocommit=True) as link:
        for lanes in (1, 10_000):
            for kind, column in (("text", 'text collate "C"'), ("number", "int")):
                table = f"sizes_{kind}_{lanes}"
                link.execute(PG_TABLE.format(table=table, type=column))
                lane = (
                    f"mod(n, {lanes})"
                    if kind == "number"
                    else f"'{LANE}'" + (f" || '#=tenant=customer-' || mod(n, {lanes})" if lanes > 1 else "")
                )
                link.execute(
                    f"insert into {table} (seq, id, home, lane, record)"  # noqa: S608
                    f" select n, int8send(n) || int8send(n), l, l, %b from generate_series(1, {jobs}) n,"
                    f" lateral (select {lane} as l) x", (RECORD,)
                )  # fmt: skip
                ((rows, ready),) = link.execute(
                    f"select pg_table_size('{table}'), pg_relation_size('{table}_ready')"
                ).fetchall()
                _show_size(lanes, kind, rows, ready)
                link.execute(f"drop table {table}")


# ---- SQLite ------------------------------------------------------------------------------------------------

LITE_TABLE = """
create table if not exists lanes (id integer primary key, name text unique);
insert or ignore into lanes (id, name) values (1, 'email/async');
create table {table} (
    id blob primary key, state text not null default 'ready', lane not null, priority integer not null default 0,
    seq integer not null, token integer, record blob
) without rowid;
create index {table}_ready on {table} (lane, priority desc, seq) where state = 'ready';
"""
LITE_LANES = {"text": "?3", "number": "?3", "number looked up": "(select id from lanes where name = ?3)"}


class LiteLanes:
    def __init__(self, link: sqlite3.Connection, kind: str, size: int) -> None:
        self._table = table = "jobs_" + kind.replace(" ", "_")
        self._link, self._size = link, size
        link.executescript(LITE_TABLE.format(table=table))
        self._lane = 1 if kind == "number" else LANE
        self._insert = f"insert into {table} (id, seq, lane, record) values (?1, ?2, {LITE_LANES[kind]}, ?4)"  # noqa: S608
        self._claim = (
            f"update {table} set state = 'running', token = 1 where id in (select id from {table} where state = 'ready'"  # noqa: S608
            f" and lane = {LITE_LANES[kind].replace('3', '1')} order by priority desc, seq limit 64)"
            " returning id, lane, record"
        )

    def insert(self, n: int) -> None:
        for each in slices(n, self._size):
            self._link.execute("begin immediate")
            rows = [(id, int.from_bytes(id), self._lane, RECORD) for id in job_ids(each)]
            self._link.executemany(self._insert, rows)
            self._link.execute("commit")

    def rest(self, n: int) -> None:
        for _ in slices(n, CLAIMED):
            self._link.execute("begin immediate")
            claimed = self._link.execute(self._claim, (self._lane,)).fetchall()
            self._link.executemany(f"delete from {self._table} where id = ?", [row[:1] for row in claimed])  # noqa: S608
            self._link.execute("commit")


def lite_link(place: Place) -> sqlite3.Connection:
    link = sqlite3.connect(place.address, isolation_level=None)
    link.executescript("pragma journal_mode = wal; pragma synchronous = normal")
    return link


def lite_lanes(place: Place, size: int) -> dict[str, Phases]:
    found = {kind: LiteLanes(lite_link(place), kind, size) for kind in LITE_LANES}
    return {kind: Phases(each.insert, each.rest) for kind, each in found.items()}


def _pages(link: sqlite3.Connection) -> int:
    """The pages in use."""
    ((all_pages,), (unused,)) = (link.execute(f"pragma {each}_count").fetchone() for each in ("page", "freelist"))
    return int(all_pages - unused)


def lite_sizes(place: Place, jobs: int) -> None:
    link = lite_link(place)
    for lanes in (1, 10_000):
        for kind in ("text", "number"):
            table = f"sizes_{kind}_{lanes}"
            link.executescript(LITE_TABLE.format(table=table).split("create index")[0])
            lane = (
                f"n % {lanes}"
                if kind == "number"
                else f"'{LANE}'" + (f" || '#=tenant=customer-' || (n % {lanes})" if lanes > 1 else "")
            )
            link.execute(f"create index {table}_ready on {table} (lane, priority desc, seq) where state = 'ready'")
            before = _pages(link)
            link.execute(
                f"with recursive c(n) as (select 1 union all select n + 1 from c where n < {jobs})"  # noqa: S608
                f" insert into {table} (id, seq, lane, record)"
                f" select cast(printf('%016d', n) as blob), n, {lane}, ? from c",
                (RECORD,),
            )  # fmt: skip
            used = _pages(link)
            link.execute(f"drop index {table}_ready")
            free = _pages(link)
            _show_size(lanes, kind, (free - before) * 4096, (used - free) * 4096)
            link.execute(f"drop table {table}")


LITE_COUNTS = """
create table running (id blob primary key, lane text, state text, flags integer) without rowid;
create index running_unkeyed on running (lane, state, flags) where state = 'running' and flags & 2;
create table holds (bucket text, job blob, token integer, primary key (bucket, job)) without rowid;
create table uses (bucket text, worker text, n integer, primary key (bucket, worker)) without rowid;
"""


class LiteCounts:
    """64 jobs of an unkeyed limit start and end in one transaction, beside ``others`` that run."""

    def __init__(self, link: sqlite3.Connection, way: str, others: int) -> None:
        self._link, self._way = link, way
        if not link.execute("select 1 from sqlite_master where name = 'running'").fetchall():
            link.executescript(LITE_COUNTS)
        self._others = others
        self.begin()

    def _add(self, ids: list[bytes]) -> None:
        flags = 2 if self._way == "own row" else 0
        lane = "email/async#api"
        self._link.executemany("insert into running values (?, ?, 'running', ?)", [(id, lane, flags) for id in ids])
        if self._way == "row for each job":
            self._link.executemany("insert into holds values ('api', ?, 1)", [(id,) for id in ids])
        elif self._way == "row for each worker":
            self._link.execute(
                "insert into uses values ('api', 'w', ?) on conflict (bucket, worker) do update set n = n + excluded.n",
                (len(ids),),
            )

    def begin(self) -> None:
        for table in ("running", "holds", "uses"):
            self._link.execute(f"delete from {table}")  # noqa: S608
        self._add(job_ids(self._others))

    def turn(self, n: int) -> None:
        link = self._link
        for each in slices(n, CLAIMED):
            link.execute("begin immediate")
            link.execute(_LITE_USED[self._way]).fetchall()
            ids = job_ids(each)
            self._add(ids)
            link.executemany("delete from running where id = ?", [(id,) for id in ids])
            if self._way == "row for each job":
                link.executemany("delete from holds where bucket = 'api' and job = ?", [(id,) for id in ids])
            elif self._way == "row for each worker":
                link.execute("update uses set n = n - ? where bucket = 'api' and worker = 'w'", (each,))
            link.execute("commit")


_LITE_USED = {
    "own row": "select lane, count(*) from running indexed by running_unkeyed"
    " where state = 'running' and flags & 2 group by lane",
    "row for each job": "select count(*) from holds where bucket = 'api'",
    "row for each worker": "select sum(n) from uses where bucket = 'api'",
}


# ---- Redis -------------------------------------------------------------------------------------------------

LUA_ENQUEUE = """
local lane = {lane}
local line, entries, rows = '{{ms}}:line:0:' .. lane, {{}}, {{}}
local packed = struct.pack('>Hc0', #lane, lane)
local seq = redis.call('HINCRBY', '{{ms}}:meta', 'seq', #ARGV - 1)
for n = 2, #ARGV do
  entries[n - 1] = ARGV[n] .. struct.pack('>d', seq)
  rows[2 * n - 3], rows[2 * n - 2] = ARGV[n], 'R' .. packed .. '{record}'
end
redis.call('HSET', '{{ms}}:jobs', unpack(rows))
redis.call('RPUSH', line, unpack(entries))
redis.call('ZADD', '{{ms}}:index:' .. lane, 'NX', seq, '0:' .. lane)
return 1
"""
LUA_CLAIM = """
local lane = {lane}
local entries, ids, rows = redis.call('LPOP', '{{ms}}:line:0:' .. lane, 64) or {{}}, {{}}, {{}}
local packed = struct.pack('>Hc0', #lane, lane)
for n, entry in ipairs(entries) do ids[n] = string.sub(entry, 1, 16) end
if #ids == 0 then return {{}} end
for n, raw in ipairs(redis.call('HMGET', '{{ms}}:jobs', unpack(ids))) do
  if string.find(raw, packed, 2, true) == 2 then rows[2 * n - 1], rows[2 * n] = ids[n], 'X' .. string.sub(raw, 2) end
end
redis.call('HSET', '{{ms}}:jobs', unpack(rows))
return rows
"""
LUA_LANES = {
    "name": ("ARGV[1]", LANE),
    "number": ("ARGV[1]", "1"),
    "number looked up": ("redis.call('HGET', '{{ms}}:lanes', ARGV[1])", LANE),
}


class RedisLanes:
    def __init__(self, link: redis.Redis, kind: str, size: int, lane: str = "") -> None:
        link.hset("{ms}:lanes", LANE, "2")
        text, usual = LUA_LANES[kind]
        self._lane = lane or usual
        text = text.replace("{{", "{").replace("}}", "}")
        self._link, self._size = link, size
        self._enqueue = link.register_script(LUA_ENQUEUE.format(lane=text, record=RECORD.decode()))
        self._claim = link.register_script(LUA_CLAIM.format(lane=text))

    def insert(self, n: int) -> None:
        for each in slices(n, self._size):
            self._enqueue(args=[self._lane, *job_ids(each)])

    def rest(self, n: int) -> None:
        for _ in slices(n, CLAIMED):
            claimed = self._claim(args=[self._lane])
            self._link.hdel("{ms}:jobs", *claimed[::2])


def redis_lanes(place: Place, size: int) -> dict[str, Phases]:
    found = {kind: RedisLanes(redis.Redis.from_url(place.address), kind, size) for kind in LUA_LANES}
    return {kind: Phases(each.insert, each.rest) for kind, each in found.items()}


def redis_sizes(place: Place, jobs: int) -> None:
    link = redis.Redis.from_url(place.address)
    for lanes in (1, 10_000):
        for kind in ("name", "number"):
            link.flushall(asynchronous=False)
            before = link.info("memory")["used_memory"]
            for first in range(0, jobs, 100):
                key = first // 100 % lanes
                name = str(key) if kind == "number" else LANE + (f"#=tenant=customer-{key}" if lanes > 1 else "")
                RedisLanes(link, "number", 100, name).insert(100)
            used = (link.info("memory")["used_memory"] - before) / jobs
            print(f"  {lanes:6} lanes, {kind:7} {used:6.1f} bytes for each job", flush=True)


LUA_COUNT = """
redis.call('HGET', 'counts', 'api')
redis.call('HINCRBY', 'counts', 'api', #ARGV)
redis.call('HINCRBY', 'counts', 'api', -#ARGV)
"""
LUA_MEMBERS = """
redis.call('ZCARD', 'members')
local pairs = {}
for n, id in ipairs(ARGV) do pairs[2 * n - 1], pairs[2 * n] = '1', id end
redis.call('ZADD', 'members', unpack(pairs))
redis.call('ZREM', 'members', unpack(ARGV))
"""


def _run_script(script: Any, size: int, args: list[Any] | None, n: int) -> None:
    """Once for each ``size`` jobs, with these arguments or with new ids."""
    for each in slices(n, size):
        script(args=args or job_ids(each))


def redis_counts(place: Place) -> dict[str, Phases]:
    link = redis.Redis.from_url(place.address)
    link.zadd("members", dict.fromkeys(job_ids(1000), 1))
    found = {"number": link.register_script(LUA_COUNT), "member for each job": link.register_script(LUA_MEMBERS)}
    return {name: Phases(partial(_run_script, script, CLAIMED, None), _nothing) for name, script in found.items()}


LUA_FIELDS = """
local known = {}
for _, lane in ipairs(ARGV) do {read} known[lane] = fields end
"""
LUA_FROM_NAME = """
local queue, kind, unkeyed, keys, marks = string.match(lane, '^([^/]*)/([^#!?]*)(#?[^=!?]*)([^!?]*)(.*)$')
local base = queue .. '/' .. kind
local suspect = string.sub(marks, 1, 1) == '!'
local fields = {
  queue = queue, base = base, unkeyed = string.sub(unkeyed, 2), keys = string.sub(keys, 2), marks = marks,
  suspect = suspect, home = base .. unkeyed .. keys, root = suspect and base .. '!' or base,
  set = base .. unkeyed .. marks, keyed = keys ~= '', limited = unkeyed ~= '',
  fair = string.sub(unkeyed, 1, 2) == '#*', free = unkeyed == '#*', task = string.match(marks, '^!?%?(.*)$'),
}
"""
LUA_FROM_HASH = "local fields = cmsgpack.unpack(redis.call('HGET', 'fields', lane))"
LUA_STORE_FIELDS = f"""
for _, lane in ipairs(ARGV) do {LUA_FROM_NAME} redis.call('HSET', 'fields', lane, cmsgpack.pack(fields)) end
"""


def redis_fields(place: Place) -> dict[str, Phases]:
    link = redis.Redis.from_url(place.address)
    lanes = [f"{LANE}#api=tenant=customer-{n}" for n in range(100)]
    link.register_script(LUA_STORE_FIELDS)(args=lanes)
    ways = {"nothing": "local fields = lane", "from the name": LUA_FROM_NAME, "from a hash": LUA_FROM_HASH}
    found = {name: link.register_script(LUA_FIELDS.replace("{read}", read)) for name, read in ways.items()}
    return {name: Phases(partial(_run_script, script, len(lanes), lanes), _nothing) for name, script in found.items()}


# ---- the store itself --------------------------------------------------------------------------------------


class StoreLimits:
    """Jobs of one kind in the store: enqueued a few at a time, then claimed and acked by turns of 64."""

    def __init__(
        self, place: Place, name: str, buckets: tuple[Bucket, ...], size: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        url = place.address if "://" in place.address else f"sqlite:///{place.address}"
        self._store = connect_to(StoreAddress(url=url, namespace=name))
        self._buckets, self._size, self._loop, self._name = buckets, size, loop, name
        self._limits = tuple(Limit(name=each.limit, size=100_000) for each in buckets)
        self._number = 0
        loop.run_until_complete(self._open())

    async def _open(self) -> None:
        await self._store.migrate()
        await self._store.open()
        await self._store.beat([Beat("bench", Registration(queues=("email",), tasks=("send",), lease=10**12))])

    def phases(self) -> Phases:
        return Phases(lambda n: self._run(self._insert(n)), lambda n: self._run(self._turns(n)))

    def _run(self, work: Any) -> None:
        self._loop.run_until_complete(work)

    async def _insert(self, n: int) -> None:
        for each in slices(n, self._size):
            jobs = tuple(self._job() for _ in range(each))
            await self._store.enqueue(JobBatch(id=new_id().bytes, jobs=jobs, limits=self._limits))

    def _job(self) -> NewJob:
        return NewJob(id=new_id().bytes, task="send", queue="email", kind="async", record=RECORD, buckets=self._buckets)

    async def _turns(self, n: int) -> None:
        acks: tuple[Ack, ...] = ()
        done = 0
        while done < n or acks:
            self._number += 1
            wants = (Want((LANE,), min(CLAIMED, n - done)),) if done < n else ()
            turn = Turn(worker="bench", number=self._number, seen=self._number - 1, acks=acks, wants=wants)
            said = await self._store.turn(turn)
            done += len(said.claims)
            acks = tuple(Ack.succeeded(Lease(each.id, each.token)) for each in said.claims)


def store_limits(place: Place, size: int) -> dict[str, Phases]:
    loop = asyncio.new_event_loop()
    kinds = {"plain": (), "unkeyed": (Bucket("api"),), "one_key": (Bucket("api", "7"),)}
    return {name: StoreLimits(place, name, buckets, size, loop).phases() for name, buckets in kinds.items()}


# ---- the command -------------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> None:
    given = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, places.fresh(given.store, Path(folder)) as place:
        print(f"{given.store}, {given.part}, {given.size} at a time, {given.rounds} rounds of {given.n}", flush=True)
        if given.part == "sizes":
            {"postgres": pg_sizes, "sqlite": lite_sizes, "redis": redis_sizes}[given.store](place, given.jobs)
        elif given.part == "lanes":
            made = {"postgres": pg_lanes, "sqlite": lite_lanes, "redis": redis_lanes}[given.store](place, given.size)
            measure(made, place, given.n, given.rounds)
        elif given.part == "limits":
            measure(store_limits(place, given.size), place, given.n, given.rounds)
        elif given.part == "fields":
            measure(redis_fields(place), place, given.n, given.rounds)
        elif given.store == "redis":
            measure(redis_counts(place), place, given.n, given.rounds)
        else:
            for others in (0, 1000):
                ways = {way: LiteCounts(lite_link(place), way, others) for way in _LITE_USED}
                print(f"  beside {others} running jobs")
                made = {way: Phases(each.turn, _nothing, each.begin) for way, each in ways.items()}
                measure(made, place, given.n, given.rounds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lane_cost", description=__doc__)
    parser.add_argument("--store", choices=ENGINES, default="postgres")
    parser.add_argument("--part", choices=("lanes", "sizes", "limits", "counts", "fields"), default="lanes")
    parser.add_argument("--size", type=int, default=100, help="jobs of one enqueue")
    parser.add_argument("--n", type=int, default=640, help="jobs of one round")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs of the part sizes")
    parser.add_argument("--rounds", type=int, default=20)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
