"""What a party or the server reads at its start, and how rows and columns are dealt.

Read sources.py first: what a configuration says under `data` or `labels`, and what comes of it.

    sources.py    DataConfig, LabelConfig, load_features, load_labels, prepare
    features.py   Features: a party's columns        labels.py   Labels: the server's classes
    idx.py  cifar.py  adult.py  views.py  bundled.py  tensors.py  the formats, with unpack.py and records.py
    tables.py     tables as a configuration names them; table.py reads one of any format, with fields.py (types),
                  cells.py, keys.py; csv_file.py  arrow_files.py  database.py  arrays.py are the formats
    looks.py      text that looks like numbers or dates in another notation: notation.py, dates.py
    doubts.py     what is allowed in a party's columns, and often a mistake
    split.py      which part of every row a party holds
    scale.py      what is subtracted and divided before a model sees the values
    encode.py     what becomes of typed columns; kept.py keeps it with the run
    noise.py      bad data on purpose, for experiments
    rows.py       training, validation and test rows; the batch of a round
    catalogue.py  the sets that Colonnade knows      places.py  where it looks for files
    fetch.py      downloads
"""
