"""A decoder with the names and the layout of Stanford CS336's first assignment; the code is our own.

Read in tests/adapters.py at commit 25a8a49 (edition of 2025): ``w1`` is the gate, ``w3`` the up and ``w2`` the
down projection; rows of the projections are ordered head by head; RoPE turns adjacent pairs. Nothing
of torch.nn but Module, ModuleList and Parameter is used there, and no config object is kept.
"""

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class Embedding(nn.Module):
    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim))

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.weight[token_ids]


class RMSNorm(nn.Module):
    """``upcast``: compute in float32, as students do, which is a loss of precision in a float64 model."""

    def __init__(self, d_model: int, eps: float = 1e-5, upcast: bool = False) -> None:
        super().__init__()
        self.eps, self.upcast = eps, upcast
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32) if self.upcast else x
        rms = torch.sqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (wide / rms * self.weight).to(x.dtype)


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = Linear(d_model, d_ff)
        self.w2 = Linear(d_ff, d_model)
        self.w3 = Linear(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.w1(x)
        return self.w2(gate * torch.sigmoid(gate) * self.w3(x))


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, rope_theta: float) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.theta = num_heads, d_model // num_heads, rope_theta
        self.q_proj = Linear(d_model, d_model)
        self.k_proj = Linear(d_model, d_model)
        self.v_proj = Linear(d_model, d_model)
        self.output_proj = Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            projection(x).unflatten(-1, (self.num_heads, self.head_dim)).transpose(-3, -2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = self.rotate(q) @ self.rotate(k).transpose(-1, -2) / self.head_dim**0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)
        return self.output_proj((weights @ v).transpose(-3, -2).flatten(-2))

    def rotate(self, x: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        powers = torch.arange(0, self.head_dim, 2, dtype=wide, device=x.device) / self.head_dim
        angles = torch.arange(x.shape[-2], dtype=wide, device=x.device)[:, None] / self.theta**powers
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


class TransformerBlock(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, rope_theta: float, upcast: bool) -> None:
        super().__init__()
        self.ln1 = RMSNorm(d_model, upcast=upcast)
        self.attn = MultiHeadSelfAttention(d_model, num_heads, rope_theta)
        self.ln2 = RMSNorm(d_model, upcast=upcast)
        self.ffn = SwiGLU(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class TransformerLM(nn.Module):
    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        rope_theta: float,
        upcast: bool = False,
    ) -> None:
        super().__init__()
        self.context_length = context_length
        self.token_embeddings = Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(
            TransformerBlock(d_model, num_heads, d_ff, rope_theta, upcast) for _ in range(num_layers)
        )
        self.ln_final = RMSNorm(d_model, upcast=upcast)
        self.lm_head = Linear(d_model, vocab_size)

    def forward(self, in_indices: Tensor) -> Tensor:
        x = self.token_embeddings(in_indices)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.ln_final(x))


def draw(model: nn.Module) -> None:
    """Weights on which a fault shows: no gain is 1."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1:
                weight.copy_(1.0 + 0.3 * noise)
            else:
                weight.copy_(noise if "embeddings" in name else noise * weight.shape[1] ** -0.5)


def build(*, upcast: bool = False) -> TransformerLM:
    model = TransformerLM(
        vocab_size=31,
        context_length=23,
        d_model=20,
        num_layers=3,
        num_heads=5,
        d_ff=34,
        rope_theta=10000.0,
        upcast=upcast,
    )
    draw(model)
    return model.eval()


def build_upcasting() -> TransformerLM:
    """As most solutions have it: norms in float32, whatever the model's dtype."""
    return build(upcast=True)
