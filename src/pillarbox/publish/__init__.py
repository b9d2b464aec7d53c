"""Publishers: Kafka, RabbitMQ, the embedded log and memory, chosen by URL scheme (``registry``)."""
