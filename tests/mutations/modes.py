"""Faults of keys under which the newest enqueue replaces the job that waits."""

from __future__ import annotations

from .word import Mutation, mutation

MODES: tuple[Mutation, ...] = (
    mutation(
        "started-is-replaced", "A job that was started is never changed", "latest",
        ("sql/latest.sql", "coalesce(j.token = 0 and j.state <> 'running', 0)", "coalesce(j.state <> 'running', 0)"),
    ),
    mutation(
        "debounce-without-end", "A debounced job waits no longer than max_wait", "delays",
        ("latest.py", "return min(due, last.enqueued + unique.max_wait) if unique.max_wait else due", "return due"),
    ),
    mutation(
        "throttle-not-seen", "A throttled job starts a window after the last start", "delays",
        ("latest.py", "due = min(started[0] or 0, tx.now) + unique.window", "due = tx.now"),
    ),
    mutation(
        "keep-last-beside", "Of keep_last never two run at once", "relays",
        ("latest.py", "msgspec.structs.replace(job, after=(Edge(before, \"ignore\"),)), before", "job, before"),
    ),
    mutation(
        "print-not-compared", "A kept key stands for one request", "kept",
        ("uniq.py", "if print_ is not None and print_ != unique.print:", "if False:"),
    ),
    mutation(
        "replaced-is-dropped", "A job that a batch replaces is not dropped for others of it", "replacing",
        ("enqueue.py", "return said, new + moved, replaced", "return said, new + moved, set()"),
    ),
    mutation(
        "moved-needs-no-room", "A job that goes to another queue is new there", "replacing",
        ("enqueue.py", "return said, new + moved, replaced", "return said, new, replaced"),
    ),
    mutation(
        "place-kept-elsewhere", "A job that goes to another queue has no place there", "standing",
        ("latest.py", "state == READY and last.queue == job.queue:", "state == READY:"),
    ),
    mutation(
        "parked-for-the-replaced", "Nobody waits for the moment of a head that was put off", "standing",
        ("latest.py", '        tx.run("open_waiting", (last.id,))\n', "        pass\n"),
    ),
)  # fmt: skip
