"""Background services of a worker. They do not import the worker that runs them: ``launch/services.py`` joins them."""
