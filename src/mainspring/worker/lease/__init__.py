"""The lease of a worker: heartbeats, and what ends when they fail."""
