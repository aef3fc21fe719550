"""Console output and pages of a search and of a cross-validation."""
