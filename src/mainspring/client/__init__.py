"""The client of a store: what producers use to enqueue, wait and ask."""
