"""The supervisor: start workers, watch them, end them."""
