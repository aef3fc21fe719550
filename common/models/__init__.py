"""Models: towers (parties), heads (server), and their optimisers.

build.py       ModelConfig, HeadConfig, build_model, build_head
mlp.py  linear.py  polynomial.py         towers: a party's values -> its embedding
cnn.py  lenet.py  resnet.py              towers for images and parts of them, see image.py
heads.py       embeddings -> scores
norm.py        batch norm, also of a single row
own.py         a user-defined module from a file
optimiser.py   OptimiserConfig, build_optimiser
"""
