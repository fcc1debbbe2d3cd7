from mainspring.testing.contract.unique_keys.conflicts import *  # noqa: F403  # the classes are the tests
