"""Fair keys: claims are shared by weight between the keys of a queue."""
