from mainspring.testing.contract.unique_keys.keep_last import *  # noqa: F403  # the classes are the tests
