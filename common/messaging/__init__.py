"""Messages: dataclasses of tensors and scalars, each with the declared way it may leave, and their compression."""
