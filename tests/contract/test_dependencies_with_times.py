from mainspring.testing.contract.dependencies.with_times import *  # noqa: F403  # the classes are the tests
