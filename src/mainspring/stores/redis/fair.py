"""Fair keys. The scripts do all of it; Python only names the lane of a job with a fair key (:mod:`.lanes`).

``lua/_fair.lua`` chooses the lane that is next, by virtual time. ``lua/_limits_waiting.lua`` (``index_fair``,
``settle_lane_sets``) keeps the sorted sets ``vtimes`` and the hash ``clocks``. The contract in
:mod:`mainspring.stores.base` states the rule.
"""
