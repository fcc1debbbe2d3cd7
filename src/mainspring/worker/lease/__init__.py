"""The lease of a worker: heartbeats, the state shared with the supervisor, fencing, and the proof of death."""
