"""Run it: ``python main.py``. 300 photos at the same time, then one sheet; one photo is broken."""

from photos import FOLDER, SIZE, app, combine, find, shrink, take_photos

from mainspring import JobCancelled, group


def main() -> None:
    names = take_photos(300)
    broken = FOLDER / names[13]
    broken.write_bytes(b"broken")
    with app.worker():
        # A chord: the photos are known, and the sheet is made of those that succeed.
        header = group((shrink.s(name) for name in names), on_failure="partial")
        print(header.then(combine, sheet="partial.pgm").enqueue().result(timeout="60s"))

        # Each: the photos are known when `find` has run, and the sheet needs all of them.
        job = find.s("*.raw").each(shrink).then(combine, sheet="all.pgm").enqueue()
        try:
            job.result(timeout="60s")
        except JobCancelled as error:
            print("no sheet:", error.reason)
        broken.write_bytes(bytes(SIZE * SIZE))  # the photo is repaired, and the flow goes on where it failed
        app.flows.join(job.id, timeout="60s")
        app.flows.retry(job.id)
        print(job.result(timeout="60s"))
        flow = app.flows.join(job.id, timeout="60s")
        runs = sum(info.epoch for info in app.jobs.list(flow=flow.id, task=shrink, limit=1000))
        print(f"{flow.state}: {flow.counts['succeeded']} jobs; {runs} thumbnails were made for it")


if __name__ == "__main__":
    main()
