"""Flows: joins that end with their members, policies of edges, cancelled flows, retention and retries of flows."""
