"""What users and our own suite test with: servers, clocks, the store contract."""
