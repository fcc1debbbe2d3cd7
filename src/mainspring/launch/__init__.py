"""Start workers: from an app to running processes."""
