"""The models: towers that parties train, heads that the server trains, and their optimisers.

build.py       ModelConfig, HeadConfig, build_model, build_head
mlp.py  linear.py  polynomial.py         towers: a party's values -> its embedding
cnn.py  lenet.py  resnet.py              towers for images and parts of them, see image.py
heads.py       embeddings -> scores
norm.py        batch norm, also of a single row
own.py         a module from a file of the party's or server's own
optimiser.py   OptimiserConfig, build_optimiser
"""
