"""Everything about the PostgreSQL client: connections, transactions, statements, wake-ups, errors, schema,
migrations."""
