"""Commands that show and change a running fleet: queues, limits, breakers, locks, workers, status."""
