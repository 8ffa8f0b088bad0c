"""A decoder of somebody's own: RMSNorm, rotary positions, grouped-query attention, SwiGLU, in sixty lines of torch.nn.

Its parameters have the names of Stanford CS336's first assignment, which is one of the layouts that ProofLM knows.
"""

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, width: int, num_heads: int, num_kv_heads: int, theta: float) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.theta = num_heads, width // num_heads, theta
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, num_kv_heads * self.head_dim, bias=False)
        self.output_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        group = self.num_heads // k.shape[1]
        k, v = self.rotate(k).repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = self.rotate(q) @ k.mT / self.head_dim**0.5
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        return self.output_proj((weights @ v).transpose(1, 2).flatten(2))

    def rotate(self, x: Tensor) -> Tensor:
        frequencies = self.theta ** (-torch.arange(0, self.head_dim, 2, dtype=x.dtype) / self.head_dim)
        angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * frequencies
        even, odd = x[..., ::2], x[..., 1::2]
        turned = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
        return torch.stack(turned, -1).flatten(-2)


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)
        self.w3 = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, width: int, num_heads: int, num_kv_heads: int, theta: float) -> None:
        super().__init__()
        self.ln1, self.attn = RMSNorm(width), Attention(width, num_heads, num_kv_heads, theta)
        self.ln2, self.ffn = RMSNorm(width), SwiGLU(width, 2 * width)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x), visible)
        return x + self.ffn(self.ln2(x))


class TinyDecoder(nn.Module):
    """``model(token_ids, labels, attention_mask) -> (logits, loss)``: labels are aligned with the logits, -100 does not
    count, and the mask is 1 for real tokens."""

    def __init__(self, vocab_size: int = 31, context_length: int = 24, width: int = 24) -> None:
        super().__init__()
        self.context_length = context_length
        self.token_embeddings = nn.Embedding(vocab_size, width)
        self.layers = nn.ModuleList(Block(width, 6, 3, theta=10000.0) for _ in range(2))
        self.ln_final = RMSNorm(width)
        self.lm_head = nn.Linear(width, vocab_size, bias=False)

    def forward(
        self, token_ids: Tensor, labels: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        n_tokens = token_ids.shape[1]
        visible = torch.ones(n_tokens, n_tokens, dtype=torch.bool).tril()
        if attention_mask is not None:
            itself = torch.eye(n_tokens, dtype=torch.bool)  # leaves padding something to see
            visible = (visible & attention_mask.bool()[:, None, None, :]) | itself
        x = self.token_embeddings(token_ids)
        for layer in self.layers:
            x = layer(x, visible)
        logits = self.lm_head(self.ln_final(x))
        if labels is None:
            return logits, None
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
