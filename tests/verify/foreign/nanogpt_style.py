"""A decoder with the names, the layout and the habits of karpathy/nanoGPT; the code is our own.

Read in model.py at commit 3adf61e: ``c_attn`` holds queries, keys and values, in this order, in a torch.nn
Linear (out, in); ``lm_head.weight`` and ``transformer.wte.weight`` are one parameter; ``bias=False`` takes
the biases of the norms as well; without targets only the last position's logits come back; targets are
aligned with the logits, and -1 is ignored.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn


@dataclass
class GPTConfig:
    block_size: int = 19
    vocab_size: int = 29
    n_layer: int = 2
    n_head: int = 3
    n_embd: int = 18
    dropout: float = 0.0
    bias: bool = True


class LayerNorm(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.n_embd))
        self.bias = nn.Parameter(torch.zeros(config.n_embd)) if config.bias else None

    def forward(self, x: Tensor) -> Tensor:
        return nnf.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_head, self.dropout = config.n_head, config.dropout
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(x).unflatten(-1, (3, self.n_head, -1)).permute(2, 0, 3, 1, 4)
        rate = self.dropout if self.training else 0.0
        mixed = nnf.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        return self.resid_dropout(self.c_proj(mixed.transpose(1, 2).flatten(2)))


class MLP(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(nnf.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1, self.attn = LayerNorm(config), CausalSelfAttention(config)
        self.ln_2, self.mlp = LayerNorm(config), MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
                "ln_f": LayerNorm(config),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        n_tokens = idx.shape[1]
        assert n_tokens <= self.config.block_size
        places = torch.arange(n_tokens, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(places))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, -1:]), None
        logits = self.lm_head(x)
        return logits, nnf.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def draw(model: nn.Module) -> None:
    """Weights on which a fault shows: no gain is 1, no bias is 0."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1:
                is_gain = ".ln_" in name and name.endswith("weight")
                weight.copy_(0.3 * noise + float(is_gain))
            else:
                is_table = ".wte." in name or ".wpe." in name
                weight.copy_(noise if is_table else noise * weight.shape[1] ** -0.5)


def build(**changes) -> GPT:
    model = GPT(GPTConfig(**changes))
    draw(model)
    return model.eval()


def build_without_bias() -> GPT:
    return build(bias=False)
