"""Data that a party or the server reads at its start, and the split of rows and columns.

Read sources.py first: the settings under `data` and `labels`, and the objects built from them.

    sources.py    DataConfig, LabelConfig, load_features, load_labels, prepare
    features.py   Features: a party's columns        labels.py   Labels: the server's classes
    idx.py  cifar.py  adult.py  views.py  bundled.py  tensors.py  the formats, with unpack.py and records.py
    tables.py     tables as a configuration names them; table.py reads one of any format, with fields.py (types),
                  cells.py, keys.py; csv_file.py  arrow_files.py  database.py  arrays.py are the formats
    table_cache.py  a copy of a table in the run's folder
    looks.py      text that looks like numbers or dates in another notation: notation.py, dates.py
    doubts.py     warnings about columns that are allowed and often a mistake
    split.py      the part of every row that a party holds
    scale.py      scaling of values before they reach a model
    encode.py     encoding of typed columns; kept.py keeps it with the run
    noise.py      bad data on purpose, for experiments
    rows.py       training, validation and test rows; the batch of a round
    catalogue.py  the sets that Colonnade knows      places.py  the folders searched for files
    fetch.py      downloads
"""
