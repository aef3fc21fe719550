"""From a YAML file to a checked configuration, and errors that name key, value and remedy."""
