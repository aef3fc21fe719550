"""The models: towers that parties train, heads that the server trains, and their optimisers.

build.py       ModelConfig, HeadConfig, build_model, build_head
mlp.py  cnn.py  linear.py  polynomial.py         towers: a party's values -> its embedding
heads.py       embeddings -> scores
own.py         a module from a file of the party's or server's own
optimiser.py   OptimiserConfig, build_optimiser
"""
