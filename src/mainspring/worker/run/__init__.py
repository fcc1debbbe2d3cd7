"""Run attempts: from a claim to its ack."""
