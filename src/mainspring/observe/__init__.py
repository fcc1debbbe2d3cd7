"""Logs: formats, destinations and the fields of the job in each line."""
