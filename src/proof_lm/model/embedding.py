"""The table of token, or position, vectors."""

import torch
from torch import nn

from proof_lm import functional
from proof_lm.dims import Float, Int, Tensor


class Embedding(nn.Module):
    """y = W[id]. A table alone starts as ``torch.nn.Embedding`` does: N(0, 1)."""

    def __init__(self, n_rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_rows, width))
        nn.init.normal_(self.weight)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return functional.embedding(ids, self.weight)
