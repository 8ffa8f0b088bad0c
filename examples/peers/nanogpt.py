"""nanoGPT (github.com/karpathy/nanoGPT).

    proof-lm verify examples/peers/nanogpt.py:build --arg path=~/nanoGPT

It gives the logits of all positions only when it is given targets, which the verifier finds out by itself.
"""

import torch
from peer import peer, with_telling_weights
from torch import nn


def build(path: str | None = None, *, flash: bool = True, bias: bool = True) -> nn.Module:
    """``flash=False`` takes the attention that it has for PyTorch without a fused kernel."""
    code = peer("model.py", "karpathy/nanoGPT", path)
    config = code.GPTConfig(
        vocab_size=31, block_size=29, n_layer=2, n_head=3, n_embd=24, dropout=0.1, bias=bias
    )
    model = with_telling_weights(code.GPT(config))
    if not flash:
        for block in model.transformer.h:
            block.attn.flash = False
            block.attn.register_buffer("bias", torch.ones(29, 29).tril().view(1, 1, 29, 29))
    return model
