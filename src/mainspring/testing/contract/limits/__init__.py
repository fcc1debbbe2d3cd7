"""Limits: concurrency and rates, with and without keys, and holders outside of a claim."""
