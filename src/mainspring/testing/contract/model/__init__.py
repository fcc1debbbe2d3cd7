"""Random walks of several clients over a store, compared step by step with a model of the contract."""
