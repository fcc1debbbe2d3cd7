"""Calls of bulk tasks: several jobs in one slot."""
