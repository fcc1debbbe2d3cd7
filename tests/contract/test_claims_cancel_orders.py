from mainspring.testing.contract.claims.cancel_orders import *  # noqa: F403  # the classes are the tests
