"""Faults against unique keys, follow-up jobs, modes of queues, and what is written at an end."""

from __future__ import annotations

from .word import Mutation, mutation

ENDS: tuple[Mutation, ...] = (
    # ---- unique keys --------------------------------------------------------------------------
    mutation(
        "key-not-looked-at", "A key is held by one job", "keys",
        ("uniq.py", "        return job\n    return before", "        return None\n    return before"),
    ),
    mutation(
        "key-let-go-by-anybody", "A job that lost its key lets nothing go", "keys",
        ("sql/queues.sql", "set holds = 0, until = 0 where hash = ? and holds = 1", "set hash = hash where hash = ?"),
        ("sql/queues.sql", "insert or replace into {t}uniq (job, hash, until, holds) values (?, ?, ?, 1)",
         "insert or ignore into {t}uniq (job, hash, until, holds) values (?, ?, ?, 1)"),
    ),
    mutation(
        "key-never-let-go", "Every end lets the key go", "holders",
        ("uniq.py", "live or until > tx.now", "live or True"),
    ),
    mutation(
        "key-let-go-when-claimed", "A key is held in every live state", "holders",
        ("sql/queues.sql", "from {t}jobs as j where j.id = u.job)",
         "from {t}jobs as j where j.id = u.job and j.state <> 'running')"),
    ),
    mutation(
        "key-held-by-the-expired", "A job that can never run answers for nobody", "holders",
        ("sql/queues.sql", "and j.expires <= ?2 then 2", "and j.expires <= 0 * ?2 then 2"),
    ),
    mutation(
        "window-ignored", "A window holds the key after the end", "holders",
        ("uniq.py", "live or until > tx.now", "live"),
    ),
    mutation(
        "window-of-the-loser", "A window that was taken over keeps nobody", "holders",
        ("sql/queues.sql", "set holds = 0, until = 0 where", "set holds = 0 where"),
        ("sql/prune.sql", "u.job = {t}finished.id and u.holds = 1 and", "u.job = {t}finished.id and", 2),
    ),
    mutation(
        "old-one-left", "A waiting holder is superseded", "keys",
        ("enqueue.py", "        finish_waiting(tx, loser, Reason.SUPERSEDED)\n", "        pass\n"),
    ),
    mutation(
        "running-one-ended", "A running holder is left alone", "keys",
        ("sql/finish.sql", " and state <> 'running'", ""),
    ),
    mutation(
        "error-returns", "A conflict that is an error inserts nothing", "keys",
        ("uniq.py", 'job.unique.conflict == "error":\n', "False:\n"),
        ("uniq.py", 'job.unique.conflict == "return"', 'job.unique.conflict != "replace"'),
    ),
    mutation(
        "repeat-meets-the-holder", "A repeat answers for itself", "keys",
        ("enqueue.py", "job.id if is_there(tx, job.id, anywhere=repeat) else None", "None"),
    ),
    mutation(
        "retry-without-key", "A retry by hand takes its key again", "holders",
        ("uniq.py", "    if holder is None and not holds:\n        tx.run", "    if False:\n        tx.run"),
    ),
    mutation(
        "retry-in-spite-of-the-holder", "A retry by hand respects the holder", "holders",
        ("act.py", "    if holder is not None:\n        return holder\n", ""),
    ),
    mutation(
        "held-fill-the-slice", "Work in slices ends, also where keys are held", "holders",
        ("act.py", ", Action.RETRY: _UNHELD}", "}"),
        ("act.py", "[priority], Action.RETRY: [tx.now, tx.now]", "[priority]"),
    ),
    mutation(
        "key-left-behind", "A deleted job holds no key", "holders",
        ("act.py", "    drop_key(tx, job)\n", ""),
    ),
    # ---- follow-up jobs -----------------------------------------------------------------------
    mutation(
        "follow-up-forgotten", "Every end makes its follow-up job", "doors",
        ("finish.py", "        insert_follows(tx, job, end.state)\n", "        pass\n"),
    ),
    mutation(
        "follow-up-forgotten-in-bulk", "A success among others makes its follow-up job", "doors follows",
        ("sql/ack.sql", "and j.flags & 11 = 0", "and j.flags & 3 = 0"),
    ),
    mutation(
        "follow-up-of-any-end", "An end makes the follow-up job for that end", "doors",
        ("sql/queues.sql", "where f.job = ? and f.state = ? and", "where f.job = ? and ? <> '' and"),
    ),
    mutation(
        "follow-up-of-no-epoch", "Each epoch makes its own follow-up job", "follows",
        ("follows.py", "(epoch & 0xFFFF).to_bytes(2)", "bytes(2)"),
    ),
    mutation(
        "follow-up-once-only", "A retried job has its follow-up jobs again", "follows",
        ("act.py", ' | flags_of([state for (state,) in tx.all("followed", (job,))])', ""),
    ),
    mutation(
        "follow-up-doubled", "A follow-up job that was there is not made again", "follows",
        ("inserts.py", "    if is_there(tx, job.id, anywhere=True):\n        return\n", ""),
    ),
    mutation(
        "follow-up-of-a-child-forgotten", "A job that ends with its parent makes its follow-up job", "doors",
        ("finish.py", "_move(tx, child, flags, End(State", "_move(tx, child, 0, End(State"),
    ),
    mutation(
        "follow-up-wakes-nobody", "A follow-up job can be claimed at once", "follows",
        ("inserts.py", "        enter_ready(tx, job.queue, standing_of(row), row[6])\n", "        pass\n"),
    ),
    mutation(
        "follow-up-unchecked", "A follow-up job that could not be inserted is refused", "follows",
        ("follows.py", "    if wrong:\n", "    if False:\n"),
    ),
    # ---- modes --------------------------------------------------------------------------------
    mutation(
        "pause-not-looked-at", "A paused queue hands out nothing", "modes",
        ("claims.py", "paused(tx) if wants else None", "None"),
    ),
    mutation(
        "pause-of-everybody", "A pause is for its queue", "modes",
        ("claims.py", "if queue_of(lane) not in held", "if False"),
    ),
    mutation(
        "draining-not-looked-at", "A draining queue takes no more", "modes",
        ("settings.py", "    if queue.mode == QueueMode.DRAINING:\n", "    if False:\n"),
    ),
    mutation(
        "draining-takes-bulk", "A draining queue takes no plain jobs either", "modes",
        ("enqueue.py", "if special and any(", "if False and any("),
    ),
    mutation(
        "opening-wakes-nobody", "Opening a queue wakes its listeners", "modes",
        ("modes.py", "    if mode is not QueueMode.PAUSED:\n", "    if False:\n"),
    ),
    mutation(
        "mode-since-now", "A mode stands since it was first said", "modes",
        ("sql/queues.sql", "\nwhere mode <> excluded.mode", ""),
    ),
    # ---- what is written at an end ------------------------------------------------------------
    mutation(
        "keep-forgotten-in-bulk", "A success is dropped by its own keep", "facts keeping",
        ("sql/ack.sql", "?1 + j.keep, j.keep,", "null, null,"),
    ),
    mutation(
        "keep-forgotten", "Every end but death begins the job's own keep", "facts keeping",
        ("sql/finish.sql", ":now + keep, keep, buckets", "null, null, buckets"),
    ),
    mutation(
        "label-forgotten", "A dead job says what it died of", "facts tallying",
        ("acks.py", "label=ack.label", "label=None"),
    ),
    mutation(
        "note-forgotten", "A cancelled job says why", "facts",
        ("acks.py", "note=words or None", "note=None"),
    ),
    mutation(
        "note-forgotten-in-rescue", "A job cancelled by a rescue says why", "facts",
        ("fleet.py", "note=held.ordered or None", "note=None"),
    ),
    mutation(
        "ended-not-named", "A promotion names what expired", "facts",
        ("store.py", "ended=done.ended + part.ended,", "ended=part.ended,"),
    ),
)  # fmt: skip
