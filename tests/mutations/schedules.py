"""Faults against schedules and their dependencies."""

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
    mutation(
        "success-in-bulk-not-noted", "A success in bulk is noted for its dependents", "dependencies.release",
        ("sql/ack.sql", "j.flags & {FLAG_DEPENDENCY} = 0\n", "1\n"),
    ),
    mutation(
        "any-end-noted", "Only a success is noted", "dependencies.recorded_successes",
        ("jobs/finish.py",
         "if flags & FLAG_DEPENDENCY and ending.state is State.SUCCEEDED:",
         "if flags & FLAG_DEPENDENCY:"),
    ),
    mutation(
        "noted-before-the-start", "A success before the start of the released job is not noted", "dependencies.release",
        ("sql/dependencies.sql", "j.token = p.token and (j.expires", "j.token < 0 and (j.expires"),
    ),
    mutation(
        "not-noted-while-it-runs", "A success while the released job runs is noted",
        "dependencies.release dependencies.with_times",
        ("sql/dependencies.sql", "j.token = p.token and (j.expires", "(j.expires"),
    ),
    mutation(
        "expired-job-waited-for", "A released job past its expires does not delay the next note",
        "dependencies.with_times",
        ("sql/dependencies.sql",
         "and j.token = p.token and (j.expires is null or j.expires > ?3)",
         "and j.token = p.token and ?3"),
    ),
    mutation(
        "expired-job-released", "A waiting job past its expires is passed over", "dependencies.with_times",
        ("sql/dependencies.sql", "j.id = e.child and (j.expires is null or j.expires > ?3)", "j.id = e.child and ?3"),
    ),
    mutation(
        "notes-not-cleared", "A release clears the notes", "dependencies.release",
        ("jobs/dependencies.py", '    tx.run("clear_notes", (mark,))\n', ""),
    ),
    mutation(
        "newest-released-first", "The waiting job that was enqueued first is released first", "dependencies.release",
        ("sql/dependencies.sql", "order by e.place\nlimit 1", "order by e.place desc\nlimit 1"),
    ),
    mutation(
        "released-early", "A job waits until every dependency has succeeded", "dependencies.release",
        ("sql/dependencies.sql",
         "    and not exists (select 1 from {t}dependencies where dependent = ?2 and noted = 0)\n",
         "    and ?2\n"),
    ),
    mutation(
        "seq-lost-at-release", "A job that is released at its enqueue keeps its seq", "dependencies.release",
        ("jobs/dependencies.py", "_release_first(tx, mark, keeps_place=True)", "_release_first(tx, mark)"),
    ),
    mutation(
        "forced-keeps-notes", "A forced job clears the notes", "dependencies.set_dependencies",
        ("jobs/enqueue.py", "            note_start(tx, mark, job.id)\n", "            pass\n"),
    ),
    mutation(
        "skipped-clears-notes", "A skipped job does not clear the notes", "dependencies.with_queues_and_keys",
        ("jobs/dependencies.py", '    if tx.all("job_is_live", {"id": job})[0][0]:\n', "    if True:\n"),
    ),
    mutation(
        "forced-replacement-waits", "A forced job that replaces a waiting one is released",
        "dependencies.with_queues_and_keys",
        ("jobs/enqueue.py", "        stop_waiting(tx, job.id)\n", "        pass\n"),
    ),
    mutation(
        "retried-success-not-noted", "The success of a job that was retried by hand is noted",
        "dependencies.recorded_successes",
        ("jobs/actions.py",
         'return flags | (FLAG_DEPENDENCY if tx.all("has_dependency_mark", (job,))[0][0] else 0)',
         "return flags"),
    ),
    mutation(
        "new-dependencies-forget-notes", "A note of a dependency that stays is kept", "dependencies.set_dependencies",
        ("jobs/dependencies.py",
         "            if before not in after:\n                tx.run",
         "            if before:\n                tx.run"),
    ),
    mutation(
        "new-dependencies-release-none", "New dependencies release jobs that do not have to wait any more",
        "dependencies.set_dependencies",
        ("jobs/dependencies.py", "sorted(after)])\n            _release_first(tx, dependent)\n", "sorted(after)])\n"),
    ),
    mutation(
        "dependent-left-behind", "Nothing is kept of a name without dependencies", "dependencies.set_dependencies",
        ("jobs/dependencies.py", '            tx.run("drop_dependent", (dependent,))\n', ""),
    ),
    mutation(
        "claim-before-release-counts", "A claim before the release is not the start", "dependencies.handed_back",
        ("sql/dependencies.sql", "j.token = p.token and (j.expires", "j.token = 0 and (j.expires"),
    ),
    mutation(
        "handed-back-not-flagged", "The success of a job that was handed back with a part is noted",
        "dependencies.handed_back",
        ("jobs/dependencies.py", '    tx.run("flag_dependency", (job,))\n', ""),
    ),
    mutation(
        "handed-back-does-not-wait", "A job that is handed back with a part waits for its dependencies",
        "dependencies.handed_back",
        ("jobs/dependencies.py", "    if found is None or found[0] != job:\n        return True\n", ""),
    ),
    mutation(
        "second-part", "A job that has a part keeps it", "dependencies.handed_back",
        ("jobs/ack.py", "joins = ack.part and not job.flags & FLAG_DEPENDENCY", "joins = ack.part"),
    ),
    mutation(
        "follow-up-with-a-part", "A follow-up job has no part", "dependencies.with_queues_and_keys",
        ("../shared/follow_ups.py", "    if part_of(job.marks) is not None:\n", "    if False:\n"),
    ),
)  # fmt: skip
