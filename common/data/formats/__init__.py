"""Tables and arrays in files and databases."""
