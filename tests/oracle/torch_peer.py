"""The decoder a third time, from torch.nn.functional and autograd: the oracle's peer in these tests."""

import torch
import torch.nn.functional as nnf
from torch import Tensor

from proof_lm.config import DecoderConfig

ACTIVATIONS = {
    "gelu": nnf.gelu,
    "gelu_tanh": lambda x: nnf.gelu(x, approximate="tanh"),
    "silu": nnf.silu,
    "relu": nnf.relu,
}


def peer_rotate(x: Tensor, positions: Tensor, config: DecoderConfig) -> Tensor:
    """RoPE of (B, heads, T, H): as complex numbers where interleaved, by rotate_half where half."""
    width = config.head_width
    frequencies = 1.0 / config.rope_theta ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = positions[:, None, :, None] * frequencies
    if config.rope_layout == "interleaved":
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
    angles = torch.cat([angles, angles], dim=-1)
    turned = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], dim=-1)
    return x * angles.cos() + turned * angles.sin()


def peer_forward(
    config: DecoderConfig, weights: dict[str, Tensor], token_ids: Tensor, real: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits (B, T, V), and the hidden input of the first block, which keeps its gradient."""

    def linear(name: str, x: Tensor) -> Tensor:
        return nnf.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name: str, x: Tensor) -> Tensor:
        if config.norm == "rmsnorm":
            return nnf.rms_norm(x, x.shape[-1:], weights[f"{name}.weight"], config.norm_eps)
        return nnf.layer_norm(
            x, x.shape[-1:], weights[f"{name}.weight"], weights.get(f"{name}.bias"), config.norm_eps
        )

    def attention(name: str, x: Tensor) -> Tensor:
        q, k, v = (
            linear(f"{name}.{part}", x).unflatten(-1, (-1, config.head_width)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        if config.position == "rope":
            q, k = peer_rotate(q, positions, config), peer_rotate(k, positions, config)
        k, v = (t.repeat_interleave(config.n_heads // config.kv_heads, dim=1) for t in (k, v))
        visible = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril() & real[:, None, None, :]
        if config.sliding_window is not None:
            visible = visible.triu(1 - config.sliding_window)
        mixed = nnf.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return linear(f"{name}.out", mixed.transpose(1, 2).flatten(-2))

    def feed_forward(name: str, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[config.activation]
        if config.feed_forward == "gated":
            inner = activation(linear(f"{name}.gate", x)) * linear(f"{name}.up", x)
        else:
            inner = activation(linear(f"{name}.up", x))
        return linear(f"{name}.down", inner)

    x = nnf.embedding(token_ids, weights["embedding.weight"])
    if config.position == "learned":
        x = x + nnf.embedding(positions, weights["position_embedding.weight"])
    hidden = x.masked_fill(~real[..., None], 0.0)
    hidden.retain_grad()
    x = hidden
    for i in range(config.n_layers):
        x = x + attention(f"blocks.{i}.attention", norm(f"blocks.{i}.attention_norm", x))
        x = x + feed_forward(f"blocks.{i}.feed_forward", norm(f"blocks.{i}.feed_forward_norm", x))
    head = weights["embedding.weight" if config.tie_embeddings else "head.weight"]
    return nnf.linear(norm("final_norm", x), head), hidden
