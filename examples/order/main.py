"""Run it: ``python main.py``. Three orders: one arrives, one cannot be paid, one cannot be sent."""

from shop import JOURNAL, Order, app, checkout, noted

ORDERS = [Order(1, "Emma", 12), Order(2, "Encyclopedia", 900), Order(3, "Out of print", 30)]


def main() -> None:
    JOURNAL.write_text("")
    with app.worker():
        jobs = [checkout(order).flow(name=f"order {order.number}").enqueue() for order in ORDERS]
        for order, job in zip(ORDERS, jobs, strict=True):
            flow = app.flows.join(job.id, timeout="60s")  # also waits for what is taken back
            print(f"{flow.name}: {flow.state}; {', '.join(noted(order.number))}")
    for failed in app.jobs.list(state="dead"):
        print(f"{failed.task} {failed.error.type if failed.error else ''}")


if __name__ == "__main__":
    main()
