from mainspring.testing.contract.probes import *  # noqa: F403  # the classes are the tests
