"""Search for hyperparameters and cross-validation, on simulated federations."""
