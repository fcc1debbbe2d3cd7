"""Faults against enqueue, edges, follow-up jobs, actions, history, reports and pruning."""

from __future__ import annotations

from .mutation import Mutation, mutation

JOBS: tuple[Mutation, ...] = (
    mutation(
        "repeat-forgets-finished", "A repeated enqueue makes no second job of a finished one", "jobs.enqueue",
        ("sql/enqueue.sql", "    or exists (select 1 from {t}finished where id = :id)\n", ""),
    ),
    mutation(
        "repeat-forgets-dead", "A repeated enqueue makes no second job of a dead one", "jobs.enqueue",
        ("sql/enqueue.sql", "    or exists (select 1 from {t}dead where id = :id)", ""),
    ),
    mutation(
        "repeat-unchecked", "A repeated enqueue makes each job once", "jobs.enqueue claims.lost_replies",
        ("jobs/enqueue.py", "if not repeat and _are_plain", "if _are_plain"),
    ),
    mutation(
        "late-first-try", "A first try that arrives after its retry makes no job twice", "jobs.enqueue",
        ("jobs/enqueue.py", 'batch.retry or tx.first("batch_was_retried", (batch.id,)) is not None', "batch.retry"),
    ),
    mutation(
        "half-a-batch", "A batch is inserted as a whole or not at all", "jobs.enqueue",
        ("jobs/enqueue.py",
         "            raise StoreConflict(", "            return 1\n            raise StoreConflict("),
    ),
    mutation(
        "ended-parent-waited-for", "A parent that has ended before is resolved at once", "jobs.enqueue",
        ("jobs/enqueue.py", "if parent.state in LIVE:", "if True:"),
    ),
    mutation(
        "child-of-dead-parent", "A new child of a dead parent is cancelled at once", "jobs.enqueue",
        ("jobs/enqueue.py",
         "self.ended[job.id] = Reason.PARENT if Reason.PARENT in (reason, self.ended.get(job.id)) else reason", "pass"),
    ),
    mutation(
        "children-forgotten", "Every end of a parent resolves its children", "jobs.edges",
        ("jobs/finish.py", "if flags & FLAG_HAS_CHILDREN:", "if False:"),
    ),
    mutation(
        "policy-ignored", "A failed parent cancels the child unless the policy is ignore", "jobs.edges",
        ("jobs/finish.py", "if parent.ended_well or policy ==", "if parent.ended_well or policy !="),
    ),
    mutation(
        "cascade-stops", "A cancelled child resolves its own children", "jobs.edges",
        ("jobs/finish.py",
         "return ended if child.flags & FLAG_HAS_CHILDREN else None", "return None"),
    ),
    mutation(
        "released-with-one-parent", "A child waits for all of its parents", "jobs.edges",
        ("jobs/finish.py", "if job.deps > released:", "if False:"),
    ),
    mutation(
        "delay-forgotten", "An unblocked child waits until it is due", "jobs.edges",
        ("jobs/finish.py", "if job.due is not None and job.due > tx.now:", "if False:"),
    ),
    mutation(
        "deleted-parent-waited-for", "No job waits for a deleted parent", "jobs.edges",
        ("jobs/actions.py", "        resolve(tx, [parent])\n", "        pass\n"),
    ),
    mutation(
        "act-in-any-state", "An action works only from the states of the transition table",
        "jobs.transitions jobs.actions",
        ("jobs/actions.py", "if state not in sources(action)", "if state not in sources(action) | {State.RUNNING}"),
    ),
    mutation(
        "retried-in-two-tables", "A retried job is in one table", "jobs.actions",
        ("jobs/actions.py", '    tx.run("drop_" + table, (job,))\n    tx.run("drop_progress", (job,))\n', ""),
    ),
    mutation(
        "retry-token-from-zero", "The tokens of a retried job go on", "jobs.actions",
        ("sql/actions.sql", " end, token, worker, epoch + 1", " end, 0, worker, epoch + 1", 2),
    ),
    mutation(
        "retry-same-epoch", "A retry by hand starts a new epoch", "jobs.actions",
        ("sql/actions.sql", "worker, epoch + 1", "worker, epoch", 2),
    ),
    mutation(
        "empty-query-obeyed", "An empty query is refused", "jobs.actions",
        ("jobs/actions.py", "if query.empty:", "if False:"),
    ),
    mutation(
        "slices-without-end", "Work in slices reaches every job and ends", "jobs.actions",
        ("jobs/actions.py", 'return "cancel_order is null", []', 'return "1", []'),
    ),
    mutation(
        "report-unguarded", "Only the owner of a good lease may report", "jobs.reports jobs.stream_items",
        ("sql/reports.sql", "j.token = ? and j.worker = ? and", "(j.token = ? or 1) and (j.worker = ? or 1) and"),
    ),
    mutation(
        "log-lines-unlimited", "At most 1,000 log lines are kept for each job", "jobs.reports",
        ("jobs/reports.py", "last + len(lines) - LINES_KEPT)", "last + len(lines) - 100 * LINES_KEPT)"),
    ),
    mutation(
        "young-pruned", "A job that ended within keep_at_least is not pruned", "jobs.pruning",
        ("jobs/prune.py", "return min(before, tx.now - retention.keep_at_least)", "return before"),
    ),
    mutation(
        "dead-pruned-early", "Dead jobs are kept longer", "jobs.pruning",
        ("jobs/prune.py", "retention.keep_dead,", "retention.keep,"),
    ),
    mutation(
        "older-document-wins", "An older version never replaces a newer one", "store.documents",
        ("sql/documents.sql", "\nwhere excluded.version >= version", ""),
    ),
    mutation(
        "namespaces-shared", "Two namespaces never see each other's jobs", "store.open_and_migrate",
        ("driver/database.py", "self._namespace = namespace\n", 'self._namespace = namespace = "shared"\n'),
    ),
    mutation(
        "follow-ups-left-behind", "A pruned job leaves no follow-up jobs behind", "jobs.pruning",
        ("jobs/actions.py", ', "drop_follow_ups")', ")"),
    ),
    mutation(
        "note-not-read", "The note of a cancelled job can be read", "jobs.marks_and_notes",
        ("sql/query.sql", "error, note, record", "error, null, record", 2),
    ),
    mutation(
        "first-item-stays", "An item of a later attempt replaces that of an earlier one", "jobs.stream_items",
        ("sql/reports.sql", "insert or replace into", "insert or ignore into"),
    ),
    mutation(
        "items-outlive-a-retry", "A retry by hand starts with an empty stream", "jobs.stream_items",
        ("jobs/actions.py", '    tx.run("drop_items", (job,))\n', ""),
    ),
    mutation(
        "dropped-lines-uncounted", "Log lines that are not kept are numbered too", "jobs.reports",
        ("jobs/reports.py", "enumerate(report.logs, last + 1)", "enumerate(report.logs[-LINES_KEPT:], last + 1)"),
    ),
    mutation(
        "logs-from-the-start", "'logs' returns the lines after a number", "jobs.reports",
        ("sql/reports.sql", "from {t}logs where job = ? and n > ?", "from {t}logs where job = ? and n <> ?"),
    ),
    mutation(
        "own-keep-overruled", "A job with a keep of its own is pruned by that alone", "jobs.keep",
        ("sql/prune.sql", "    and drop_at is null\n", ""),
    ),
    mutation(
        "own-keep-counted", "A job with a keep of its own is not counted", "jobs.keep",
        ("sql/prune.sql", "from {t}finished where drop_at is null order by", "from {t}finished order by"),
    ),
    mutation(
        "window-pruned", "A job whose unique window runs is not pruned", "jobs.keep",
        ("sql/prune.sql", "u.window_end > :now", "u.window_end > :now + 1e18", 4),
    ),
    mutation(
        "too-few-kept", "keep_count jobs are kept at least", "jobs.pruning",
        ("jobs/prune.py", "return last[0] if", "return last[0] + 1 if"),
    ),
    mutation(
        "dead-without-count", "Dead jobs are pruned by number too", "jobs.pruning",
        ("jobs/prune.py", "retention.keep_dead_count", "10**9"),
    ),
    mutation(
        "follow-up-forgotten", "Every end inserts its follow-up job", "jobs.follow_up_ends",
        ("jobs/finish.py", "        insert_follow_ups(tx, job, ending.state)\n", "        pass\n"),
    ),
    mutation(
        "follow-up-forgotten-in-bulk", "A success in bulk inserts its follow-up job",
        "jobs.follow_up_ends jobs.follow_ups",
        ("driver/constants.py",
         "FLAG_CANCEL_ORDERED | FLAG_FOLLOWED_SUCCESS",
         "FLAG_CANCEL_ORDERED"),
    ),
    mutation(
        "follow-up-of-any-end", "An end inserts the follow-up jobs for its own state only", "jobs.follow_up_ends",
        ("sql/follow_ups.sql", "where f.job = ? and f.state = ? and", "where f.job = ? and ? <> '' and"),
    ),
    mutation(
        "follow-up-without-epoch", "Each epoch has its own follow-up job", "jobs.follow_ups",
        ("jobs/follow_ups.py", "(epoch % EPOCHS).to_bytes(EPOCH_BYTES)", "bytes(EPOCH_BYTES)"),
    ),
    mutation(
        "follow-up-once-only", "A retried job has its follow-up jobs again", "jobs.follow_ups",
        ("jobs/actions.py",
         'return flags | flags_of_follow_ups([state for (state,) in tx.all("followed_states", (job,))])',
         "return flags"),
    ),
    mutation(
        "follow-up-doubled", "A follow-up job that exists is not inserted again", "jobs.follow_ups",
        ("jobs/follow_ups.py", "    if job_exists(tx, job.id, anywhere=True):\n        return\n", ""),
    ),
    mutation(
        "follow-up-of-a-child-forgotten", "A job that ends with its parent inserts its follow-up job",
        "jobs.follow_up_ends",
        ("jobs/finish.py", "_move(tx, child.child, child.flags, JobEnding(", "_move(tx, child.child, 0, JobEnding("),
    ),
    mutation(
        "follow-up-not-found", "A follow-up job can be claimed at once", "jobs.follow_ups",
        ("jobs/follow_ups.py", "        enter_ready(tx, job.queue, placement_of(row), row[6])\n", "        pass\n"),
    ),
    mutation(
        "follow-up-of-a-follow-up-forgotten", "A follow-up job has its own follow-up jobs", "jobs.follow_ups",
        ("jobs/follow_ups.py", "    _store(tx, job.id, follow_ups_of_inserted(job))\n", "    pass\n"),
    ),
    mutation(
        "follow-up-of-a-follow-up-once-only", "Each epoch of each job has its own follow-up jobs", "jobs.follow_ups",
        ("../shared/follow_ups.py", "sha256(parent + job.id)", "sha256(job.id)"),
    ),
    mutation(
        "follow-up-unchecked", "A follow-up job that could not be inserted is refused", "jobs.follow_ups",
        ("jobs/follow_ups.py", "            check_follow_ups(job)\n", "            pass\n"),
    ),
    mutation(
        "keep-forgotten-in-bulk", "A success in bulk is pruned by its own keep", "jobs.marks_and_notes jobs.keep",
        ("sql/ack.sql", "?1 + j.keep, j.keep,", "null, null,"),
    ),
    mutation(
        "keep-forgotten", "Every end but dead starts the job's own keep", "jobs.marks_and_notes jobs.keep",
        ("sql/finish.sql", ":now + keep, keep, buckets", "null, null, buckets"),
    ),
    mutation(
        "label-forgotten", "A dead job has the label of its error", "jobs.marks_and_notes query.tally",
        ("jobs/ack.py", "label=ack.label", "label=None"),
    ),
    mutation(
        "note-forgotten", "A cancelled job has the note of its cancel order", "jobs.marks_and_notes",
        ("jobs/ack.py", "            note=job.cancel_order or None,\n", "            note=None,\n"),
    ),
    mutation(
        "note-forgotten-in-rescue", "A job cancelled by a rescue has the note of its cancel order",
        "jobs.marks_and_notes",
        ("jobs/ack.py", "        note = job.cancel_order or None\n", "        note = None\n"),
    ),
    mutation(
        "expired-not-named", "A promotion names the jobs that expired", "jobs.marks_and_notes",
        ("jobs/promote.py", "ended=done.ended + part.ended,", "ended=part.ended,"),
    ),
)  # fmt: skip
