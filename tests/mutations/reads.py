"""Faults in what can be asked, in streams and logs, and in retention."""

from __future__ import annotations

from .word import Mutation, mutation

READS: tuple[Mutation, ...] = (
    mutation(
        "one-mark-will-do", "A job of a query has all its marks", "filters",
        ("where.py", "enumerate(by_rarity(query.marks))", "enumerate(by_rarity(query.marks)[:1])"),
    ),
    mutation(
        "marks-walked-once", "Any job with the mark is found, however many newer there are", "filters",
        ("find.py", "if len(ids) < size:", "if len(ids) <= size:"),
    ),
    mutation(
        "mark-left-behind", "Nothing of a deleted job is left", "filters pruning",
        ("act.py", '"drop_marks", ', ""),
    ),
    mutation(
        "follows-left-behind", "Nothing of a pruned job is left", "pruning",
        ("act.py", ' "drop_follows",', ""),
    ),
    mutation(
        "conditions-forgotten", "An action is held to every condition of its query", "filters",
        ("act.py", "return msgspec.structs.replace(query, states=tuple(states))", "return Query(states=tuple(states))"),
    ),
    mutation(
        "since-exclusive", "Since includes its moment", "filters", ("where.py", "enqueued >= ?", "enqueued > ?"),
    ),
    mutation(
        "until-inclusive", "Until does not include its moment", "filters",
        ("where.py", "enqueued < ?", "enqueued <= ?"),
    ),
    mutation(
        "ended-inclusive", "Ended before does not include its moment", "filters",
        ("where.py", "finished < ?", "finished <= ?"),
    ),
    mutation(
        "errors-by-type-only", "Without an error the reason is the error", "filters",
        ("where.py", "coalesce(label, reason)", "label"),
    ),
    mutation(
        "tally-of-the-last-part", "A tally counts every id of a long list", "tallying",
        ("tally.py", "_sum(found[key], each) if key in found else each", "each"),
    ),
    mutation(
        "tally-by-enqueue", "A tally speaks of the end of ended jobs", "tallying",
        ("tally.py", '"dead": "finished"', '"dead": "enqueued"'),
    ),
    mutation(
        "note-not-read", "The words of whoever cancelled a job can be read", "facts",
        ("sql/find.sql", "error, note, record", "error, null, record", 2),
    ),
    mutation(
        "first-item-stays", "A later attempt's item takes the place of an earlier one's", "items",
        ("sql/report.sql", "insert or replace into", "insert or ignore into"),
    ),
    mutation(
        "items-outlive-a-retry", "A retry by hand begins with an empty stream", "items",
        ("act.py", '    tx.run("drop_items", (job,))\n', ""),
    ),
    mutation(
        "dropped-lines-uncounted", "Log lines are numbered, also those that are not kept", "reports",
        ("reports.py", "enumerate(report.logs, last + 1)", "enumerate(report.logs[-LINES_KEPT:], last + 1)"),
    ),
    mutation(
        "logs-from-the-start", "Logs are read on after a line", "reports",
        ("sql/report.sql", "from {t}logs where job = ? and n > ?", "from {t}logs where job = ? and n <> ?"),
    ),
    mutation(
        "own-keep-overruled", "A job with a keep of its own goes by that alone", "keeping",
        ("sql/prune.sql", "    and drop_at is null\n", ""),
    ),
    mutation(
        "own-keep-counted", "A job with a keep of its own is not counted", "keeping",
        ("sql/prune.sql", "from {t}finished where drop_at is null order by", "from {t}finished order by"),
    ),
    mutation(
        "window-pruned", "A running window keeps its job", "keeping",
        ("sql/prune.sql", "u.until > :now", "u.until > :now + 1e18", 3),
    ),
    mutation(
        "too-few-kept", "A number never keeps fewer than it says", "pruning",
        ("prune.py", "return last[0] if", "return last[0] + 1 if"),
    ),
    mutation(
        "dead-without-number", "The dead are kept up to a number too", "pruning",
        ("prune.py", "retention.keep_dead_count", "10**9"),
    ),
)  # fmt: skip
