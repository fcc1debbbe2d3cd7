"""Faults against unique keys and the modes in which the newest enqueue replaces a waiting job."""

from __future__ import annotations

from .mutation import Mutation, mutation

UNIQUE_KEYS: tuple[Mutation, ...] = (
    mutation(
        "key-not-checked", "A key is held by one job", "unique_keys.conflicts",
        ("jobs/keys.py", "        return job\n    if mode", "        return None\n    if mode"),
    ),
    mutation(
        "key-released-by-the-loser", "A job that lost its key releases nothing", "unique_keys.conflicts",
        ("sql/keys.sql",
         "set holds = 0, window_end = 0 where hash = ? and holds = 1",
         "set hash = hash where hash = ?"),
        ("sql/keys.sql",
         "insert or replace into {t}unique_keys (job, hash, window_end, holds) values (?, ?, ?, 1)",
         "insert or ignore into {t}unique_keys (job, hash, window_end, holds) values (?, ?, ?, 1)"),
    ),
    mutation(
        "key-never-released", "Every end releases the key", "unique_keys.release",
        ("jobs/keys.py", "live or window_end > tx.now", "live or True"),
    ),
    mutation(
        "key-released-when-claimed", "A key is held in every live state", "unique_keys.release",
        ("sql/keys.sql",
         "from {t}jobs as j where j.id = u.job\n",
         "from {t}jobs as j where j.id = u.job and j.state <> {RUNNING}\n"),
    ),
    mutation(
        "key-held-by-expired-job", "An expired job does not hold its key", "unique_keys.release",
        ("sql/keys.sql", "and j.expires <= ?2 then", "and j.expires <= 0 * ?2 then"),
    ),
    mutation(
        "window-ignored", "A window holds the key after the end", "unique_keys.release",
        ("jobs/keys.py", "live or window_end > tx.now", "live"),
    ),
    mutation(
        "window-of-the-loser", "The window of a job that lost its key keeps no job from pruning", "unique_keys.release",
        ("sql/keys.sql", "set holds = 0, window_end = 0 where", "set holds = 0 where"),
        ("sql/prune.sql", "u.job = {t}finished.id and u.holds = 1 and", "u.job = {t}finished.id and", 2),
    ),
    mutation(
        "waiting-holder-left", "A waiting holder is superseded", "unique_keys.conflicts",
        ("jobs/enqueue.py", "        finish_waiting(tx, loser, Reason.SUPERSEDED)\n", "        pass\n"),
    ),
    mutation(
        "running-holder-ended", "A running holder is left alone", "unique_keys.conflicts",
        ("sql/finish.sql", " and state <> {RUNNING}", ""),
    ),
    mutation(
        "error-returns", "With conflict=error nothing is inserted", "unique_keys.conflicts",
        ("jobs/keys.py", 'job.unique.conflict == "error":\n', "False:\n"),
        ("jobs/keys.py", 'job.unique.conflict == "return"', 'job.unique.conflict != "replace"'),
    ),
    mutation(
        "repeat-meets-the-holder", "A repeated enqueue finds its own job", "unique_keys.conflicts",
        ("jobs/enqueue.py", "job.id if job_exists(tx, job.id, anywhere=repeat) else None", "None"),
    ),
    mutation(
        "retry-without-key", "A retry by hand takes its key again", "unique_keys.release",
        ("jobs/keys.py", "    if holder is None and not holds:\n        tx.run", "    if False:\n        tx.run"),
    ),
    mutation(
        "retry-ignores-the-holder", "A retry by hand is refused while another job holds the key", "unique_keys.release",
        ("jobs/actions.py", "    if holder is None:\n        enter_ready(", "    if True:\n        enter_ready("),
    ),
    mutation(
        "held-fill-the-slice", "Work in slices ends even if keys are held", "unique_keys.release",
        ("jobs/actions.py", "tx.sql['key_is_free']", "'1 or ? + ?'"),
    ),
    mutation(
        "key-left-behind", "A deleted job holds no key", "unique_keys.release",
        ("jobs/actions.py", "    drop_key(tx, job)\n", ""),
    ),
    mutation(
        "started-is-replaced", "A job that was started is never changed", "unique_keys.replace",
        ("sql/keys.sql", "coalesce(j.token = 0 and j.state <> {RUNNING}, 0)", "coalesce(j.state <> {RUNNING}, 0)"),
    ),
    mutation(
        "debounce-without-end", "A debounced job waits no longer than max_wait", "unique_keys.debounce_and_throttle",
        ("jobs/keys.py", "return min(due, last.enqueued + unique.max_wait) if unique.max_wait else due", "return due"),
    ),
    mutation(
        "throttle-ignored", "A throttled job starts one window after the last start",
        "unique_keys.debounce_and_throttle",
        ("jobs/keys.py", "due = min(started[0] or 0, tx.now) + unique.window", "due = tx.now"),
    ),
    mutation(
        "keep-last-beside", "Two jobs of a keep_last key never run at once", "unique_keys.keep_last",
        ("jobs/keys.py",
         "msgspec.structs.replace(job, after=(Edge(previous, EDGE_IGNORE),)), previous", "job, previous"),
    ),
    mutation(
        "print-not-compared", "A kept key accepts the same request only", "unique_keys.kept_keys",
        ("jobs/keys.py", "if print_ is not None and print_ != unique.print:", "if False:"),
    ),
    mutation(
        "replaced-is-dropped", "A job that a batch replaces is not dropped for other jobs of the batch",
        "unique_keys.replace_in_queues",
        ("jobs/enqueue.py", "return replies, new + moved, replaced", "return replies, new + moved, {}"),
    ),
    mutation(
        "moved-needs-no-depth", "A replaced job that goes to another queue counts as new there",
        "unique_keys.replace_in_queues",
        ("jobs/enqueue.py", "return replies, new + moved, replaced", "return replies, new, replaced"),
    ),
    mutation(
        "seq-kept-elsewhere", "A replaced job that goes to another queue gets a new seq",
        "unique_keys.replace_in_lanes",
        ("jobs/keys.py", "state == READY and last.queue == job.queue:", "state == READY:"),
    ),
    mutation(
        "parked-for-the-replaced", "A lane does not wait for the moment of a first job that was replaced",
        "unique_keys.replace_in_lanes",
        ("jobs/keys.py", '        tx.run("open_lane_of_job", (last.id,))\n', "        pass\n"),
    ),
)  # fmt: skip
