"""Run it: ``python main.py``. A backlog of every plan, a worker, and what the store has noted of its starts."""

from bisect import bisect_right
from collections import Counter

from crm import PLANS, app, sync

from mainspring import JobInfo

EACH = 200


def main() -> None:
    calls = [
        sync.s(f"{plan}-{n % 10}", page=n).options(queue=plan) for plan in PLANS for n in range(EACH)
    ]  # the free ones come last, and would wait for all others in a single queue
    jobs = app.enqueue_many(calls)
    with app.worker(async_slots=20):
        done = sorted((job.join(timeout="100s") for job in jobs), key=started)
    early = Counter(info.queue for info in done[:EACH])
    print("of the first", EACH, {plan: early[plan] for plan in PLANS})
    print("most starts in a second", most([started(info) for info in done], 1.0))
    print("most of one customer at once", max(at_once(done).values()))


def started(info: JobInfo) -> float:
    assert info.started is not None
    return info.started.timestamp()


def ended(info: JobInfo) -> float:
    assert info.finished is not None
    return info.finished.timestamp()


def most(moments: list[float], window: float) -> int:
    """Of any window, the one with the most moments."""
    return max(bisect_right(moments, at) - bisect_right(moments, at - window) for at in moments)


def at_once(done: list[JobInfo]) -> Counter[str]:
    """The most jobs of each customer that overlapped."""
    found: Counter[str] = Counter()
    for info in done:
        customer, start = info.args["customer"], started(info)
        others = [other for other in done if other.args["customer"] == customer]
        overlapping = sum(started(other) <= start < ended(other) for other in others)
        found[customer] = max(found[customer], overlapping)
    return found


if __name__ == "__main__":
    main()
