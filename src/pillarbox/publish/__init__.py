"""Publishers: Kafka, RabbitMQ, NATS JetStream, the embedded log and memory, chosen by URL scheme (``registry``)."""
