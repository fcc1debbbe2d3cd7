"""Bulk tasks: several jobs run in one call of the handler."""
