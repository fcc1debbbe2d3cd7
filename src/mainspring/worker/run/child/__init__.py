"""Runs jobs inside a pool child: the worker's own executor, with the channel in the place of the turn loop."""
