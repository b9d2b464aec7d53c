"""The pytest plugin: fixtures for users' tests, found by pytest through the package's entry point."""
