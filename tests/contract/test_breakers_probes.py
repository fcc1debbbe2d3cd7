from mainspring.testing.contract.breakers.probes import *  # noqa: F403  # the classes are the tests
