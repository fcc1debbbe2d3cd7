from mainspring.testing.contract.limits.buckets import *  # noqa: F403  # the classes are the tests
