from mainspring.testing.contract.dependencies.set_dependencies import *  # noqa: F403  # the classes are the tests
