"""Faults against schedules."""

from __future__ import annotations

from .mutation import Mutation, mutation

SCHEDULES: tuple[Mutation, ...] = (
    mutation(
        "any-rev-swaps", "A row is exchanged only by a caller who saw its last number", "schedules.swap",
        ("schedules.py", "if rev != swap.rev:", "if not rev and swap.rev:"),
    ),
    mutation(
        "rev-by-the-clock-only", "The number grows even if the clock does not", "schedules.swap",
        ("schedules.py", "max(last + 1, tx.now)", "tx.now"),
    ),
    mutation(
        "deleted-rev-forgotten", "The number grows over a deletion", "schedules.swap",
        ("sql/schedules.sql",
         "update {t}schedules set look = null, doc = null, deleted_at = ?1 where name = ?2",
         "delete from {t}schedules where ?1 and name = ?2"),
    ),
    mutation(
        "runs-of-deleted-left", "A deletion deletes the runs too", "schedules.swap",
        ("schedules.py", '        tx.run("drop_runs", (swap.name,))\n', ""),
    ),
    mutation(
        "occurrence-twice", "An occurrence has one job", "schedules.swap_with_jobs",
        ("schedules.py", "if found is not None and found[0] not in (None, run.job):", "if False:"),
    ),
    mutation(
        "occurrence-without-job-taken", "A run without a job is replaced", "schedules.swap_with_jobs",
        ("schedules.py", "not in (None, run.job)", "!= run.job"),
    ),
    mutation(
        "enqueued-though-refused", "A refused exchange enqueues nothing", "schedules.swap",
        ("schedules.py", "if rev != swap.rev:", "if rev != swap.rev and (not batch or enqueue(tx, batch) or True):"),
    ),
    mutation(
        "runs-never-trimmed", "The latest 'keep' runs are kept", "schedules.due_and_runs",
        ("schedules.py", '    tx.run("trim_runs", (swap.name, swap.keep))\n', ""),
    ),
    mutation(
        "schedulers-not-woken", "An exchange wakes the schedulers", "schedules.due_and_runs",
        ("schedules.py", "    tx.woken.add(SCHEDULERS)\n", ""),
    ),
    mutation(
        "due-too-soon", "A schedule is due when its moment has come", "schedules.due_and_runs",
        ("sql/schedules.sql", "where look <= ? order by", "where look - 1 <= ? order by"),
    ),
    mutation(
        "next-look-in-the-future-only", "next_look is that of the first schedule that was left out",
        "schedules.due_and_runs",
        ("schedules.py", "rows[limit][2] if len(rows) > limit else ", ""),
    ),
)  # fmt: skip
