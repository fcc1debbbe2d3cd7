"""The client of a store, for producers: enqueue, wait, and read."""
