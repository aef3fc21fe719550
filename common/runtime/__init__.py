"""Process and machine: files, descriptors, permissions, devices, time."""
