"""Locks, semaphores and elections over the whole fleet."""
