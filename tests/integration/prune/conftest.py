"""The outbox fixtures of the store's tests: one database for each kind and module, emptied before each test."""

from tests.integration.store.conftest import outbox, shared_outbox

__all__ = ["outbox", "shared_outbox"]
