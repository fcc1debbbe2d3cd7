from mainspring.testing.contract.unique_keys.replace_in_queues import *  # noqa: F403  # the classes are the tests
