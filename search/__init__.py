"""Search for hyperparameters and cross-validation, on simulated federations.

tuning.py       `tune`: trials, one after the other or in parallel     validation.py   `cv`: folds
space.py        the values to try; defaults.py, for files without any  metrics.py      what is improved
study.py        the trials' store, on Optuna                           simulated.py    one simulation
workers.py      processes that simulate; worker.py, what each runs     folder.py       files of a search
found.py        the result of a search; tune_page.py, its page         folds.py        rows of every fold
"""
