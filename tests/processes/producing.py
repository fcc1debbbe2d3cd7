"""``python -m tests.processes.producing enqueue|aenqueue|swap|link|cancel JOB [again]``: one thing done to one job.

The batch has the id of its job, so ``again`` is the same batch sent a second time. ``swap`` makes a schedule, and
the job with it.
"""

from __future__ import annotations

import asyncio
import sys

from msgspec.structs import replace

from mainspring.common.ids import parse_id
from mainspring.jobs.records import JobBatch
from mainspring.schedules.records import ScheduleRun, ScheduleSwap
from tests.processes.mixed import app, tasks


def batch_of(id: bytes, *, again: bool) -> JobBatch:
    new = tasks.good.s().new_job()
    return JobBatch(id=id, jobs=(replace(new, id=id),), retry=again)


async def exchanged(batch: JobBatch) -> None:
    """Create the schedule, as a process that read no schedule of that name."""
    store = await app.client.store()
    await store.swap_schedule(
        ScheduleSwap(name="nightly", rev=0, doc=b"{}", runs=(ScheduleRun(at=1, job=batch.id),)), batch
    )


if __name__ == "__main__":
    verb, job, *rest = sys.argv[1:]
    batch = batch_of(parse_id(job).bytes, again="again" in rest)
    if verb == "enqueue":
        app.client.enqueue_now(batch)
    elif verb == "aenqueue":
        asyncio.run(app.client.enqueue(batch))
    elif verb == "swap":
        asyncio.run(exchanged(batch))
    else:
        tasks.endless.job(job).cancel()
