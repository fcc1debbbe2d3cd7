"""Queues: depth, order, limits of a queue, modes and disabled queues."""
