"""Plugins that all tests share."""

pytest_plugins = ["tests.services_fixtures"]
