"""Suites that hold a store, a publisher or a consumer to its contract; subclass one and give it fixtures."""
