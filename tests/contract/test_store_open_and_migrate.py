from mainspring.testing.contract.store.open_and_migrate import *  # noqa: F403  # the classes are the tests
