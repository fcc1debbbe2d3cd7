"""The supervisor: start worker processes, watch them, kill them when they must end, and give their jobs back."""
