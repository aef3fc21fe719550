"""What a message is: dataclasses of tensors and scalars, and how each may leave its sender."""
