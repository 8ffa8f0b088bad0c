"""A decoder with the names and the layout of GPTModel in rasbt/LLMs-from-scratch; the code is our own.

Read in ch04/01_main-chapter-code/gpt.py and pkg/llms_from_scratch/ch04.py at commit 28c65cd: the biases of
query, key and value are a choice (``qkv_bias``), the other layers always have theirs, the head never; GELU by
tanh; the causal mask is a buffer in the state dict; the model keeps no config (no attribute ``cfg``). There the
factor sqrt(2 / pi) of GELU is a float32 tensor, which shows in a float64 model: ``build_with_float32_gelu``.
"""

import math

import torch
from torch import Tensor, nn

CONFIG = {
    "vocab_size": 37,
    "context_length": 17,
    "emb_dim": 21,
    "n_heads": 3,
    "n_layers": 2,
    "drop_rate": 0.1,
    "qkv_bias": False,
}


class LayerNorm(nn.Module):
    def __init__(self, emb_dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(emb_dim))
        self.shift = nn.Parameter(torch.zeros(emb_dim))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return self.scale * centred * (variance + 1e-5).rsqrt() + self.shift


class GELU(nn.Module):
    factor: float | Tensor = math.sqrt(2.0 / math.pi)

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(self.factor * (x + 0.044715 * x**3)))


class Float32GELU(GELU):
    factor = torch.tensor(2.0 / math.pi, dtype=torch.float32).sqrt()


class MultiHeadAttention(nn.Module):
    def __init__(self, cfg: dict) -> None:
        super().__init__()
        width, length = cfg["emb_dim"], cfg["context_length"]
        self.num_heads = cfg["n_heads"]
        self.W_query = nn.Linear(width, width, bias=cfg["qkv_bias"])
        self.W_key = nn.Linear(width, width, bias=cfg["qkv_bias"])
        self.W_value = nn.Linear(width, width, bias=cfg["qkv_bias"])
        self.out_proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(cfg["drop_rate"])
        self.register_buffer("mask", torch.ones(length, length).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            projection(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for projection in (self.W_query, self.W_key, self.W_value)
        )
        hidden = self.mask[: x.shape[1], : x.shape[1]].bool()
        scores = (q @ k.mT).masked_fill(hidden, -torch.inf) / q.shape[-1] ** 0.5
        weights = self.dropout(scores.softmax(-1))
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, cfg: dict, gelu: type[GELU]) -> None:
        super().__init__()
        width = cfg["emb_dim"]
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), gelu(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class TransformerBlock(nn.Module):
    def __init__(self, cfg: dict, gelu: type[GELU]) -> None:
        super().__init__()
        self.att = MultiHeadAttention(cfg)
        self.ff = FeedForward(cfg, gelu)
        self.norm1 = LayerNorm(cfg["emb_dim"])
        self.norm2 = LayerNorm(cfg["emb_dim"])
        self.drop_shortcut = nn.Dropout(cfg["drop_rate"])

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_shortcut(self.att(self.norm1(x)))
        return x + self.drop_shortcut(self.ff(self.norm2(x)))


class GPTModel(nn.Module):
    def __init__(self, cfg: dict, gelu: type[GELU] = GELU) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        self.drop_emb = nn.Dropout(cfg["drop_rate"])
        self.trf_blocks = nn.Sequential(*(TransformerBlock(cfg, gelu) for _ in range(cfg["n_layers"])))
        self.final_norm = LayerNorm(cfg["emb_dim"])
        self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=False)

    def forward(self, in_idx: Tensor) -> Tensor:
        places = torch.arange(in_idx.shape[1], device=in_idx.device)
        x = self.drop_emb(self.tok_emb(in_idx) + self.pos_emb(places))
        return self.out_head(self.final_norm(self.trf_blocks(x)))


def draw(model: nn.Module) -> None:
    """Weights on which a fault shows: no gain is 1, no bias is 0."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1:
                weight.copy_(0.3 * noise + float(name.endswith(".scale")))
            else:
                weight.copy_(noise if "_emb." in name else noise * weight.shape[1] ** -0.5)


def build(gelu: type[GELU] = GELU, **changes) -> GPTModel:
    model = GPTModel({**CONFIG, **changes}, gelu)
    draw(model)
    return model.eval()


def build_with_qkv_bias() -> GPTModel:
    return build(qkv_bias=True)


def build_with_float32_gelu() -> GPTModel:
    """As published."""
    return build(Float32GELU)
