"""Messages: dataclasses of tensors and scalars, each with the declared way it may leave its sender."""
