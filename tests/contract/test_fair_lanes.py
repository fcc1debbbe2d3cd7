from mainspring.testing.contract.fair_lanes import *  # noqa: F403  # the classes are the tests
