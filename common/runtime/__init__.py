"""The process and its machine: files, descriptors, permissions, devices, time."""
