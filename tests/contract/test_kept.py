from mainspring.testing.contract.kept import *  # noqa: F403  # the classes are the tests
