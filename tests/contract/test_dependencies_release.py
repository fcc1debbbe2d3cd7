from mainspring.testing.contract.dependencies.release import *  # noqa: F403  # the classes are the tests
