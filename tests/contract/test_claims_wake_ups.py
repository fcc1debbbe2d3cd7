from mainspring.testing.contract.claims.wake_ups import *  # noqa: F403  # the classes are the tests
