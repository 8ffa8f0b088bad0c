"""Table lookup."""

from proof_lm.dims import Float, Int, Tensor


def embedding(ids: Int[Tensor, "*rows"], weight: Float[Tensor, "V D"]) -> Float[Tensor, "*rows D"]:
    """y = W[id]: one row of the table for each id. Ids must lie in [0, V)."""
    return weight.index_select(0, ids.reshape(-1)).view(*ids.shape, weight.shape[1])
