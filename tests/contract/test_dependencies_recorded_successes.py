from mainspring.testing.contract.dependencies.recorded_successes import *  # noqa: F403  # the classes are the tests
