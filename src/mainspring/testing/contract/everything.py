"""All classes of the contract: ``from mainspring.testing.contract.everything import *``."""

# ruff: noqa: F403  # this module is nothing but the sum of the others
from .acks import *
from .acting import *
from .buckets import *
from .documents import *
from .doors import *
from .edges import *
from .enqueue import *
from .facts import *
from .filters import *
from .finding import *
from .follows import *
from .holders import *
from .items import *
from .keeping import *
from .keys import *
from .large import *
from .life import *
from .limits import *
from .lost import *
from .modes import *
from .order import *
from .orders import *
from .pairs import *
from .promote import *
from .pruning import *
from .races import *
from .rates import *
from .reports import *
from .rescues import *
from .suspects import *
from .tallying import *
from .terms import *
from .times import *
from .turns import *
from .waking import *
