"""Tell hooks what happened."""
