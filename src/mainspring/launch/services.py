"""Builds the background services of a worker. Neither the worker nor its services import each other."""

from __future__ import annotations

from mainspring.schedules.service import Scheduler
from mainspring.worker.roles import SCHEDULER
from mainspring.worker.services.base import Service
from mainspring.worker.services.inspector import Inspector
from mainspring.worker.services.leader import JOBS, SCHEDULES, Leader
from mainspring.worker.services.promoter import Promoter
from mainspring.worker.services.pruner import Pruner
from mainspring.worker.services.rescuer import Rescuer
from mainspring.worker.worker import ServiceHost, WorkerServices


def build_services(host: ServiceHost) -> WorkerServices:
    """The services for the roles of this worker.

    One worker promotes due jobs, rescues the jobs of lost workers and warns of queues that no worker serves, for the
    whole fleet. One worker with the role ``scheduler`` fires schedules and deletes old jobs.
    """
    store, settings = host.store, host.config.settings
    promoter = Promoter(store, host.on_ready, on_expired=host.on_expired)
    rescuer = Rescuer(
        store, host.worker_id, sweep=settings.sweep / 1e6, on_rescued=host.on_rescued,
        is_alone=lambda: leader.fleet <= 1,
    )  # fmt: skip
    led: dict[str, list[Service]] = {JOBS: [promoter, rescuer, Inspector(store, lease=settings.lease / 1e6)]}
    scheduler: Scheduler | None = None
    if SCHEDULER in settings.roles:
        scheduler = Scheduler(store, on_news=host.on_schedule_news)
        led[SCHEDULES] = [scheduler, Pruner(store, host.config.retention)]
    leader = Leader(
        store, host.worker_id, led, promoter=promoter, scheduler=scheduler, sweep=settings.sweep / 1e6,
        watch_host=rescuer.watch_host,
    )  # fmt: skip
    services = [leader, *(service for parts in led.values() for service in parts)]
    for service in services:
        service.retry_log.outage = host.outage
    return WorkerServices(
        services,
        promote_now=promoter.tick_now,
        on_runs_ended=None if scheduler is None else scheduler.on_runs_ended,
        runs_settled=None if scheduler is None else lambda: scheduler.is_settled,
        wait_schedules_fired=None if scheduler is None else scheduler.first_tick.wait,
        fleet=lambda: leader.fleet,
    )
