"""Faults against schedules that are exchanged, and parts that wait for others."""

from __future__ import annotations

from .word import Mutation, mutation

SCHEDULED: tuple[Mutation, ...] = (
    # ---- schedules ----------------------------------------------------------------------------
    mutation(
        "any-number-swaps", "A row is exchanged by who saw its last number", "swapping",
        ("schedules.py", "if rev != asked.rev:", "if not rev and asked.rev:"),
    ),
    mutation(
        "number-by-the-clock-only", "The number grows also when the clock does not", "swapping",
        ("schedules.py", "max(last + 1, tx.now)", "tx.now"),
    ),
    mutation(
        "deleted-number-forgotten", "The number grows over a deletion", "swapping",
        (
            "sql/schedules.sql",
            "update {t}schedules set look = null, doc = null, went = ?1 where name = ?2",
            "delete from {t}schedules where ?1 and name = ?2",
        ),
    ),
    mutation(
        "deleted-with-its-runs-left", "A deletion takes the runs with it", "swapping",
        ("schedules.py", '        tx.run("drop_runs", (asked.name,))\n', ""),
    ),
    mutation(
        "occurrence-twice", "An occurrence has one job", "swapped_jobs",
        ("schedules.py", "if found is not None and found[0] not in (None, run.job):", "if False:"),
    ),
    mutation(
        "occurrence-taken-by-nobody", "A record without a job is written over", "swapped_jobs",
        ("schedules.py", "not in (None, run.job)", "!= run.job"),
    ),
    mutation(
        "enqueued-though-refused", "Of an exchange that is refused nothing is enqueued", "swapping",
        ("schedules.py", "if rev != asked.rev:", "if rev != asked.rev and (not batch or enqueue(tx, batch) or True):"),
    ),
    mutation(
        "runs-never-trimmed", "So many runs are kept", "looking",
        ("schedules.py", '    tx.run("trim_runs", (asked.name, asked.keep))\n', ""),
    ),
    mutation(
        "schedulers-not-woken", "An exchange wakes the schedulers", "looking",
        ("schedules.py", '    tx.woken.add("")\n', ""),
    ),
    mutation(
        "looked-at-too-soon", "A schedule is looked at when its moment has come", "looking",
        ("sql/schedules.sql", "where look <= ? order by", "where look - 1 <= ? order by"),
    ),
    mutation(
        "next-look-of-the-future-only", "The next moment is that of the first one left out", "looking",
        ("schedules.py", "rows[limit][2] if len(rows) > limit else ", ""),
    ),
    # ---- parts --------------------------------------------------------------------------------
    mutation(
        "success-in-bulk-not-noted", "A success is noted for who waits for it", "parts",
        ("sql/ack.sql", "j.flags & 64 = 0\n", "1\n"),
    ),
    mutation(
        "any-end-noted", "Only success is noted", "parts_noted",
        ("finish.py", "if flags & OF_PART and end.state is State.SUCCEEDED:", "if flags & OF_PART:"),
    ),
    mutation(
        "noted-while-the-released-waits", "A success before the start of the released one is not noted", "parts",
        ("sql/parts.sql", "j.token = p.token and (j.expires", "j.token < 0 and (j.expires"),
    ),
    mutation(
        "not-noted-while-it-runs", "A success while the released one runs is noted", "parts parts_around",
        ("sql/parts.sql", "j.token = p.token and (j.expires", "(j.expires"),
    ),
    mutation(
        "late-one-waited-for", "One past its expires is waited for no more", "parts_around",
        (
            "sql/parts.sql",
            "and j.token = p.token and (j.expires is null or j.expires > ?3)",
            "and j.token = p.token and ?3",
        ),
    ),
    mutation(
        "late-one-released", "One past its expires is passed over", "parts_around",
        ("sql/parts.sql", "j.id = e.child and (j.expires is null or j.expires > ?3)", "j.id = e.child and ?3"),
    ),
    mutation(
        "notes-not-taken", "A release takes the notes away", "parts",
        ("parts.py", '    tx.run("take_notes", (part,))\n', ""),
    ),
    mutation(
        "last-one-first", "The one enqueued first is released first", "parts",
        ("sql/parts.sql", "order by e.place\nlimit 1", "order by e.place desc\nlimit 1"),
    ),
    mutation(
        "released-early", "It waits until each has succeeded", "parts",
        (
            "sql/parts.sql",
            "    and not exists (select 1 from {t}links where part = ?2 and noted = 0)\n",
            "    and ?2\n",
        ),
    ),
    mutation(
        "place-lost-at-once", "A job that starts at once keeps its place in the batch", "parts",
        ("parts.py", "_advance(tx, part, keeps_place=True)", "_advance(tx, part)"),
    ),
    mutation(
        "forced-takes-no-notes", "A forced one takes the notes away", "parts_linked",
        ("enqueue.py", "            note_start(tx, part, job.id)\n", "            pass\n"),
    ),
    mutation(
        "skipped-takes-notes", "One that is skipped takes no notes", "parts_in_queues",
        ("parts.py", '    if tx.all("live", {"id": job})[0][0]:\n', "    if True:\n"),
    ),
    mutation(
        "forced-one-stays-in-line", "A forced one that replaces another is released", "parts_in_queues",
        ("enqueue.py", "        leave_line(tx, job.id)\n", "        pass\n"),
    ),
    mutation(
        "retried-success-not-noted", "The success of a job that was retried by hand is noted", "parts_noted",
        ("act.py", '    flags |= OF_PART if tx.all("is_of_part", (job,))[0][0] else 0\n', ""),
    ),
    mutation(
        "link-anew-forgets", "What was noted of a part that stays is not forgotten", "parts_linked",
        (
            "parts.py",
            "            if before not in after:\n                tx.run",
            "            if before:\n                tx.run",
        ),
    ),
    mutation(
        "link-anew-releases-nobody", "Linking a part anew releases whom it no longer holds back", "parts_linked",
        ("parts.py", "sorted(after)])\n            _advance(tx, part)\n", "sorted(after)])\n"),
    ),
    mutation(
        "last-release-remembered", "Nothing is kept of a part that waits for nobody", "parts_linked",
        ("parts.py", '            tx.run("drop_part", (part,))\n', ""),
    ),
    mutation(
        "joined-one-was-started", "A claim before the release is no start", "parts_joined",
        ("sql/parts.sql", "j.token = p.token and (j.expires", "j.token = 0 and (j.expires"),
    ),
    mutation(
        "joined-one-not-of-it", "The success of one that was handed back with a part is noted", "parts_joined",
        ("parts.py", '    tx.run("join_part", (job,))\n', ""),
    ),
    mutation(
        "joined-one-starts", "One that is handed back with a part waits for others", "parts_joined",
        ("parts.py", "    if found is None or found[0] != job:\n        return True\n", ""),
    ),
    mutation(
        "joins-a-second-part", "A job that is of a part keeps it", "parts_joined",
        ("relaning.py", "ack.part and not of_part and joins", "ack.part and joins"),
    ),
    mutation(
        "follow-up-of-a-part", "A follow-up job is of no part", "parts_in_queues",
        ("follows.py", "    elif mark_of(follow.marks):\n", "    elif False:\n"),
    ),
)  # fmt: skip
