"""How ember is made: a generator of conversations, a tokenizer, a small network, its training and
its evaluation.

Only `model`, `optimizer`, `train` and `export` import torch; the product imports none of it.
"""
