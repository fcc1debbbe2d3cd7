"""Jobs: one request to run a task, from the call to the record of what became of it."""
