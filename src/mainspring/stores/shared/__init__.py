"""Code that the three engines share."""
