"""Commands that search: `tune`, `cv`."""
