"""Where a model's bytes are and how each layer is quantised, from its configuration and the headers of its weights.

Nothing is loaded, no engine is asked: ``checkpoint`` reads, ``kinds`` says what a tensor is for, ``quantized`` how a
layer is stored, ``tally`` counts.
"""
