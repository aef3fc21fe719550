"""What a protocol exchanges, in training and in prediction, and the parts that several contracts share."""
