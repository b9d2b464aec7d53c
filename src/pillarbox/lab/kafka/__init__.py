"""Kafka by itself: what its idempotent producer and its acknowledgements promise, and where that ends.

``via`` puts proxies before all brokers, ``idempotence`` and ``replicas`` are the experiments, ``running`` runs those
that can be run here. ``trial`` has what they give: plain values.
"""
