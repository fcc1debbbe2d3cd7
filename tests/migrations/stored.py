"""Write a database of the current schema to a file, for tests of later versions: ``python -m tests.migrations.stored``.

There is one file for each released version of the PostgreSQL schema. The file of the newest version is written again
until that version is released. A JSON file beside it has the statements that a worker of that version sends: such a
worker goes on working while other workers are replaced.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptReport, JobBatch, UniqueKey
from mainspring.queues.records import QueueMode
from mainspring.schedules.records import ScheduleRun, ScheduleSwap
from mainspring.states import Action, Reason
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.migrations import VERSION
from mainspring.stores.postgres.fleet import beat_call
from mainspring.stores.postgres.jobs.enqueue import enqueue_call
from mainspring.stores.postgres.turn import turn_call
from mainspring.stores.records import Document
from mainspring.testing import servers
from mainspring.testing.contract.hands import ERROR, SECOND, Hand, job, lease
from mainspring.testing.servers import _postgres
from mainspring.worker.records import Turn

HERE = Path(__file__).parent
NAMESPACE = "stored"
NAMES = ("ready", "keyed", "scheduled", "retrying", "running", "blocked", "succeeded", "dead", "cancelled")
IDS = {name: (0x0190_0000_0000_7000_8000_0000_0000_0000 + n).to_bytes(16) for n, name in enumerate(NAMES)}
_SPARE = re.compile(r"^(\\|SET (?!check_function_bodies)|SELECT pg_catalog\.set_config|--).*\n", re.MULTILINE)


async def fill(url: str) -> None:
    """Store a job in every state, and rows in most tables."""
    store = PostgresStore(url, namespace=NAMESPACE)
    await store.migrate()
    await store.open()
    hand = await Hand(store).join()
    first = {name: job(id=IDS[name]) for name in ("succeeded", "dead", "retrying", "running")}
    await store.enqueue(JobBatch(id=IDS["ready"], jobs=tuple(first.values())))
    claims = {claim.id: claim for claim in await hand.take(4)}
    await store.report(
        hand.name, [AttemptReport(id=IDS["running"], token=claims[IDS["running"]].token, progress=b"0.5")]
    )
    await hand.turn(
        Ack.succeeded(lease(claims[IDS["succeeded"]]), b'"done"'),
        Ack.dead(lease(claims[IDS["dead"]]), ERROR, reason=Reason.NOT_RETRYABLE, label="ValueError"),
        Ack.failed(lease(claims[IDS["retrying"]]), ERROR, retry_in=3600 * SECOND),
    )
    rest = (
        job(id=IDS["ready"], marks=["tag:stored"], record=b'{"args":[1]}'),
        job(id=IDS["keyed"], unique=UniqueKey(b"k" * 16)),
        job(id=IDS["scheduled"], delay=10**15),
        job(id=IDS["blocked"], after=[first["running"]]),
        job(id=IDS["cancelled"]),
    )
    await store.enqueue(JobBatch(id=IDS["keyed"], jobs=rest, retry=True))
    await store.act(Action.CANCEL, Query.of(IDS["cancelled"]))
    await store.set_queue_mode(["slow"], QueueMode.PAUSED)
    await store.put_document(Document("schedules", "nightly", 1, b"{}"))
    await store.swap_schedule(
        ScheduleSwap(name="nightly", rev=0, doc=b"{}", look=10, runs=(ScheduleRun(at=5, job=IDS["succeeded"]),))
    )
    await store.close()


def calls() -> dict[str, str]:
    """The statements of the hot path, as this version sends them."""
    schema = PostgresStore("postgresql:///none", namespace=NAMESPACE).schema
    return {
        "enqueue": enqueue_call(JobBatch(id=b"", jobs=(job(),)), schema, None)[0],
        "turn": turn_call(Turn(worker="", number=1, seen=0), [], schema, None, {})[0],
        "beat": beat_call([], schema, None)[0],
    }


def dump(url: str) -> str:
    parts = urlsplit(url)
    host = parts.query.removeprefix("host=")
    command = [
        str(_postgres.find_programs() / "pg_dump"),
        "-h",
        host,
        "-U",
        str(parts.username),
        "-n",
        "mainspring_stored",
    ]
    options = ["--inserts", "--no-owner", "--no-privileges", parts.path.strip("/")]
    text = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout
    return re.sub(r"\n{3,}", "\n\n", _SPARE.sub("", text)).lstrip()


def main() -> None:
    with servers.postgres(own=True) as server:
        asyncio.run(fill(server.url))
        (HERE / f"postgres-{VERSION}.sql").write_text(dump(server.url))
    (HERE / f"postgres-{VERSION}.json").write_text(json.dumps(calls(), indent=2) + "\n")


if __name__ == "__main__":
    main()
