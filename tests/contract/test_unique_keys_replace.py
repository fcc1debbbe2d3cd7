from mainspring.testing.contract.unique_keys.replace import *  # noqa: F403  # the classes are the tests
