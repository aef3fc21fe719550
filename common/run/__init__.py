"""Process, folder and machine of a member: files, permissions, checkpoints, devices, time."""
