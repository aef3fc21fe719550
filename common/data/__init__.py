"""What a party or the server reads at its start, and how rows and columns are dealt.

Read sources.py first: what a configuration says under `data` or `labels`, and what comes of it.

    sources.py    DataConfig, LabelConfig, load_features, load_labels, prepare
    features.py   Features: a party's columns        labels.py   Labels: the server's classes
    idx.py  cifar.py  adult.py  table.py  views.py  bundled.py  the formats, with unpack.py and records.py
    split.py      which part of every row a party holds
    scale.py      what is subtracted and divided before a model sees the values
    noise.py      bad data on purpose, for experiments
    rows.py       training, validation and test rows; the batch of a round
    catalogue.py  the sets that Colonnade knows      places.py  where it looks for files
    fetch.py      downloads
"""
