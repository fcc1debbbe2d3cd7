"""The stored jobs: how a job comes in, is claimed, acknowledged and finished, and how jobs are found and changed."""
