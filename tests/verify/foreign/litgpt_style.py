"""A decoder with the names, the layout and the config of Lightning-AI/litgpt's GPT; the code is our own.

Read in litgpt/model.py, config.py and scripts/convert_hf_checkpoint.py at commit 2685705: ``attn.qkv`` stores the
rows of all queries, then of all keys, then of all values (before 0.5.5 ``attn.attn``, group by group);
``fc_1`` is the gate; RoPE turns dimensions half apart, the first ``rotary_percentage`` of a head; ``lm_head`` has
``padded_vocab_size`` rows; ``input_pos`` goes with a key/value cache that ``set_kv_cache`` must have made.
There RMSNorm and the table of angles are computed in float32, whatever the model's dtype: ``build_in_float32``.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn


@dataclass
class Config:
    name: str = "tiny-litgpt-style"
    block_size: int = 23
    vocab_size: int = 35
    padded_vocab_size: int = 37
    n_layer: int = 2
    n_head: int = 6
    n_query_groups: int = 3
    n_embd: int = 22
    head_size: int = 4
    intermediate_size: int = 34
    norm_class_name: str = "RMSNorm"
    norm_eps: float = 1e-6
    rope_base: int = 5000
    rotary_percentage: float = 1.0
    bias: bool = False
    parallel_residual: bool = False
    mlp_class_name: str = "LLaMAMLP"

    @property
    def rope_n_elem(self) -> int:
        return int(self.rotary_percentage * self.head_size)


class RMSNorm(nn.Module):
    def __init__(self, config: Config, in_float32: bool) -> None:
        super().__init__()
        self.eps, self.in_float32 = config.norm_eps, in_float32
        self.weight = nn.Parameter(torch.ones(config.n_embd))

    def forward(self, x: Tensor) -> Tensor:
        wide, gain = (x.float(), self.weight.float()) if self.in_float32 else (x, self.weight)
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + self.eps) * gain).to(x.dtype)


class CausalSelfAttention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        n_rows = (config.n_head + 2 * config.n_query_groups) * config.head_size
        self.qkv = nn.Linear(config.n_embd, n_rows, bias=config.bias)
        self.proj = nn.Linear(config.n_head * config.head_size, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        config = self.config
        heads = self.qkv(x).unflatten(-1, (-1, config.head_size)).transpose(1, 2)
        q, k, v = heads.split((config.n_head, config.n_query_groups, config.n_query_groups), dim=1)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        n_shared = config.n_head // config.n_query_groups
        k, v = k.repeat_interleave(n_shared, dim=1), v.repeat_interleave(n_shared, dim=1)
        mixed = nnf.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turned, kept = x.tensor_split((self.config.rope_n_elem,), dim=-1)
        a, b = turned.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, kept], dim=-1)


class LLaMAMLP(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.fc_1 = nn.Linear(config.n_embd, config.intermediate_size, bias=config.bias)
        self.fc_2 = nn.Linear(config.n_embd, config.intermediate_size, bias=config.bias)
        self.proj = nn.Linear(config.intermediate_size, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(nnf.silu(self.fc_1(x)) * self.fc_2(x))


class Block(nn.Module):
    def __init__(self, config: Config, in_float32: bool) -> None:
        super().__init__()
        self.config = config
        self.norm_1, self.attn = RMSNorm(config, in_float32), CausalSelfAttention(config)
        self.norm_2, self.mlp = RMSNorm(config, in_float32), LLaMAMLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        attended = x + self.attn(self.norm_1(x), cos, sin)
        return attended + self.mlp(self.norm_2(x if self.config.parallel_residual else attended))


class GPT(nn.Module):
    def __init__(self, config: Config, in_float32: bool = False) -> None:
        super().__init__()
        self.config, self.in_float32 = config, in_float32
        self.lm_head = nn.Linear(config.n_embd, config.padded_vocab_size, bias=False)
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.padded_vocab_size, config.n_embd),
                "h": nn.ModuleList(Block(config, in_float32) for _ in range(config.n_layer)),
                "ln_f": RMSNorm(config, in_float32),
            }
        )
        self.max_seq_length = config.block_size

    def forward(self, idx: Tensor, input_pos: Tensor | None = None) -> Tensor:
        if idx.shape[1] > self.max_seq_length:
            raise ValueError(f"{idx.shape[1]} tokens, the longest is {self.max_seq_length}")
        if input_pos is not None:
            raise TypeError("input_pos needs a key/value cache")
        x = self.transformer.wte(idx)
        cos, sin = self.rope(idx.shape[1], x)
        for block in self.transformer.h:
            x = block(x, cos, sin)
        return self.lm_head(self.transformer.ln_f(x))

    def rope(self, n_tokens: int, like: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.float32 if self.in_float32 else torch.promote_types(like.dtype, torch.float32)
        n_elem = self.config.rope_n_elem
        powers = torch.arange(0, n_elem, 2, dtype=wide, device=like.device) / n_elem
        places = torch.arange(n_tokens, dtype=wide, device=like.device)
        angles = torch.outer(places, 1.0 / self.config.rope_base**powers)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def draw(model: nn.Module) -> None:
    """Weights on which a fault shows: no gain is 1, no bias is 0."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1:
                weight.copy_(0.3 * noise + float(name.endswith("weight")))
            else:
                weight.copy_(noise if ".wte." in name else noise * weight.shape[1] ** -0.5)


def build(*, in_float32: bool = False, **changes) -> GPT:
    model = GPT(Config(**changes), in_float32)
    draw(model)
    return model.eval()


def build_with_bias() -> GPT:
    return build(bias=True)


def build_in_float32() -> GPT:
    """As released."""
    return build(in_float32=True)


def build_parallel_residual() -> GPT:
    """Attention and MLP read the same input: no decoder of ProofLM's."""
    return build(parallel_residual=True)


def build_partly_rotated() -> GPT:
    """Half of every head is rotated: no decoder of ProofLM's."""
    return build(rotary_percentage=0.5)
