"""Breakers: stop a task or any code that keeps failing."""
