"""The one legend of dimension letters, and the array types that signatures are written with.

===  ==========================================
B    batch: rows, independent of one another
T    time: the positions of this call's tokens (queries)
S    source: the positions that keys and values come from (cache + T)
D    d_model: width of the residual stream
N    n_heads: query heads
K    n_kv_heads: key/value heads; query head h reads KV head floor(h / (N / K))
H    head_dim: width of one head
F    d_ff: width of the feed-forward layer
V    vocab_size
L    n_layers
===  ==========================================

The shapes are checked by jaxtyping and beartype when the tests run, and by nobody otherwise.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Hidden = Float[Tensor, "B T D"]
TokenIds = Int[Tensor, "B T"]
PositionIds = Int[Tensor, "B T"]
TokenMask = Bool[Tensor, "B T"]
Logits = Float[Tensor, "B T V"]
Scalar = Float[Tensor, ""]
Queries = Float[Tensor, "B N T H"]
Keys = Float[Tensor, "B K S H"]
Values = Float[Tensor, "B K S H"]

__all__ = [
    "Bool",
    "Float",
    "Hidden",
    "Int",
    "Keys",
    "Logits",
    "PositionIds",
    "Queries",
    "Scalar",
    "Tensor",
    "TokenIds",
    "TokenMask",
    "Values",
]
