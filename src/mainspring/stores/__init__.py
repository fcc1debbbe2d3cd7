"""The stores: one contract (:mod:`.base`), one door (:mod:`.door`), three engines."""
