from mainspring.testing.contract.relays import *  # noqa: F403  # the classes are the tests
