"""Mathematics of the protocols: functions of tensors and arrays, without I/O."""
