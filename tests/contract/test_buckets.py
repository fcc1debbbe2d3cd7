from mainspring.testing.contract.buckets import *  # noqa: F403  # the classes are the tests
