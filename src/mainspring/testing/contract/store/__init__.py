"""The store itself: opening, closing, migrations, namespaces and documents."""
