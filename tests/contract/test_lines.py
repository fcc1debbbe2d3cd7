from mainspring.testing.contract.lines import *  # noqa: F403  # the classes are the tests
