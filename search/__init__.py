"""Search for hyperparameters and cross-validation, on simulated federations.

tuning.py   `tune`: trials, one after the other or in parallel   validation.py   `cv`: folds
space.py    the values to try; defaults.py for files without     metrics.py      what is improved
study.py    the trials and their store, on Optuna                simulated.py    one simulation
workers.py  where simulations run; worker.py, a worker process   folds.py        rows of every fold
found.py    the result of a search                               folder.py       files of both
pages/      screen and pages
"""
