"""Orders and stock: two services, two databases, RabbitMQ between them. Start with README.md."""
