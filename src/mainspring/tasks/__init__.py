"""Tasks: the functions that users decorate."""
