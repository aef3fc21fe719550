"""Processes of a run on this machine: started, watched, restarted."""
