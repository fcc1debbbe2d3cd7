"""Faults against find, tally, and conditions of queries."""

from __future__ import annotations

from .mutation import Mutation, mutation

QUERY: tuple[Mutation, ...] = (
    mutation(
        "one-mark-is-enough", "A job of a query has all of its marks", "query.conditions",
        ("jobs/query.py", "enumerate(_by_rarity(query.marks))", "enumerate(_by_rarity(query.marks)[:1])"),
    ),
    mutation(
        "marks-walked-once", "Any job with the mark is found behind any number of newer ones", "query.conditions",
        ("jobs/query.py", "if len(ids) < size:", "if len(ids) <= size:"),
    ),
    mutation(
        "mark-left-behind", "A deleted job leaves no marks behind", "query.conditions jobs.pruning",
        ("jobs/actions.py", '"drop_items", "drop_marks", ', '"drop_items", '),
    ),
    mutation(
        "conditions-forgotten", "An action obeys every condition of its query", "query.conditions",
        ("jobs/actions.py", "msgspec.structs.replace(query, states=tuple(states))", "Query(states=tuple(states))"),
        ("jobs/actions.py", "if found is None or not check.matches(job, found[0]):", "if found is None:"),
    ),
    mutation(
        "since-exclusive", "'since' includes its moment", "query.conditions",
        ("jobs/query.py", "enqueued >= ?", "enqueued > ?"),
    ),
    mutation(
        "until-inclusive", "'until' does not include its moment", "query.conditions",
        ("jobs/query.py", "enqueued < ?", "enqueued <= ?"),
    ),
    mutation(
        "ended-inclusive", "'ended_before' does not include its moment", "query.conditions",
        ("jobs/query.py", "finished < ?", "finished <= ?"),
    ),
    mutation(
        "errors-by-type-only", "A dead job without an error is found by its reason", "query.conditions",
        ("jobs/query.py", 'add_one_of("coalesce(label, reason)"', 'add_one_of("label"'),
    ),
    mutation(
        "tally-of-the-last-chunk", "A tally counts every id of a long list", "query.tally",
        ("jobs/query.py", "_add(found[key], each) if key in found else each", "each"),
    ),
    mutation(
        "tally-by-enqueue", "A tally of ended jobs returns when they ended", "query.tally",
        ("jobs/query.py", '"dead": "finished"', '"dead": "enqueued"'),
    ),
)  # fmt: skip
