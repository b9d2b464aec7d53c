"""Measures the product against a raw loop on the same tables and servers. `python -m bench --help` says how."""
