"""Run it: ``python main.py``. A worker in this process, a newsletter to five people, and the results."""

from mail import app, newsletter, send

PEOPLE = ["ada@example.org", "flaky@example.org", "grace@example.org", "nobody", "alan@example.org"]


def main() -> None:
    with app.worker(queues=["email"]):
        job = newsletter.enqueue(PEOPLE, subject="Our autumn sale")
        for info in job.watch():
            print("newsletter", info.state, info.progress or "")
        letters = app.jobs.list(parent=job.id)
        for letter in letters:
            ended = app.jobs.get(letter.id).join(timeout="60s")
            print(f"{ended.args['to']:20} {ended.state:10} after {len(ended.attempts)} failed attempts")
        in_bulk = send.enqueue_many([send.s(f"customer{n}@example.org", "Thank you") for n in range(100)])
        for each in in_bulk:
            each.result(timeout="60s")
        print(len(in_bulk), "letters in bulk")
    for group in app.dead.stats():
        print("dead:", group.value, group.count)


if __name__ == "__main__":
    main()
