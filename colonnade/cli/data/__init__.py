"""Commands about tables and data sets."""
