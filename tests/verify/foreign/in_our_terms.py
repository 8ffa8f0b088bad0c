"""The right decoders of this folder in ProofLM's terms: their configs, and where our modules lie in them.

Written out by hand, so that an adapter that finds them out by itself can be compared with them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from proof_lm.config import DecoderConfig
from proof_lm.oracle import parameter_shapes
from verify.foreign import (
    cs336_style,
    litgpt_style,
    llms_from_scratch_style,
    nanogpt_style,
    torch_nn_decoder,
)

# Rows of a fused projection by their number, for the sizes in nanogpt_style and litgpt_style.
Place = str | tuple[str, int, int]
NO_BIAS = {"attention_bias": False, "attention_out_bias": False, "feed_forward_bias": False}
LLAMA = {"norm": "rmsnorm", "feed_forward": "gated", "activation": "silu", **NO_BIAS}


@dataclass(frozen=True)
class Foreign:
    """A decoder, its definition in our terms, and where our modules lie in it.

    ``logits`` calls it; ``norm_kinds`` are its names for a norm's weight and bias.
    """

    build: Callable[[], nn.Module]
    config: DecoderConfig
    places: Mapping[str, Place]
    logits: Callable[[nn.Module, Tensor], Tensor] = lambda model, ids: model(ids)
    norm_kinds: tuple[str, str] = ("weight", "bias")

    def place(self, name: str) -> tuple[str, slice]:
        """The foreign tensor that holds our tensor of this name, and the rows of it that do."""
        module, kind = name.rsplit(".", 1)
        layer = re.search(r"\d+", module)
        theirs = self.places[re.sub(r"\d+", "{i}", module)]
        theirs, *rows = theirs if isinstance(theirs, tuple) else (theirs, None)
        if module.endswith("norm"):
            kind = self.norm_kinds[("weight", "bias").index(kind)]
        return f"{theirs.format(i=layer and layer[0])}.{kind}", slice(*rows)

    def in_our_names(self, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        found = {}
        for name in parameter_shapes(self.config):
            theirs, rows = self.place(name)
            found[name] = tensors[theirs].detach()[rows].numpy()
        return found


TORCH_NN = Foreign(
    torch_nn_decoder.correct,
    DecoderConfig(
        vocab_size=31,
        context_length=29,
        n_layers=2,
        d_model=24,
        n_heads=6,
        n_kv_heads=3,
        head_dim=4,
        d_ff=37,
        rope_layout="half",
        tie_embeddings=False,
        **LLAMA,
    ),
    {
        "embedding": "tok",
        "blocks.{i}.attention_norm": "layers.{i}.norm1",
        "blocks.{i}.attention.query": "layers.{i}.attn.wq",
        "blocks.{i}.attention.key": "layers.{i}.attn.wk",
        "blocks.{i}.attention.value": "layers.{i}.attn.wv",
        "blocks.{i}.attention.out": "layers.{i}.attn.wo",
        "blocks.{i}.feed_forward_norm": "layers.{i}.norm2",
        "blocks.{i}.feed_forward.gate": "layers.{i}.ffn.w_gate",
        "blocks.{i}.feed_forward.up": "layers.{i}.ffn.w_up",
        "blocks.{i}.feed_forward.down": "layers.{i}.ffn.w_down",
        "final_norm": "norm",
        "head": "out",
    },
    logits=lambda model, ids: model(ids).logits,
)
TORCH_NN_TIED = Foreign(
    torch_nn_decoder.correct_tied,
    TORCH_NN.config.with_(tie_embeddings=True),
    TORCH_NN.places,
    logits=TORCH_NN.logits,
)
NANOGPT = Foreign(
    nanogpt_style.build,
    DecoderConfig(
        vocab_size=29, context_length=19, n_layers=2, d_model=18, n_heads=3, d_ff=72, position="learned"
    ),
    {
        "embedding": "transformer.wte",
        "position_embedding": "transformer.wpe",
        "blocks.{i}.attention_norm": "transformer.h.{i}.ln_1",
        "blocks.{i}.attention.query": ("transformer.h.{i}.attn.c_attn", 0, 18),
        "blocks.{i}.attention.key": ("transformer.h.{i}.attn.c_attn", 18, 36),
        "blocks.{i}.attention.value": ("transformer.h.{i}.attn.c_attn", 36, 54),
        "blocks.{i}.attention.out": "transformer.h.{i}.attn.c_proj",
        "blocks.{i}.feed_forward_norm": "transformer.h.{i}.ln_2",
        "blocks.{i}.feed_forward.up": "transformer.h.{i}.mlp.c_fc",
        "blocks.{i}.feed_forward.down": "transformer.h.{i}.mlp.c_proj",
        "final_norm": "transformer.ln_f",
    },
    logits=lambda model, ids: model(ids, targets=ids)[0],
)
NANOGPT_WITHOUT_BIAS = Foreign(
    nanogpt_style.build_without_bias,
    NANOGPT.config.with_(norm_bias=False, **NO_BIAS),
    NANOGPT.places,
    logits=NANOGPT.logits,
)
CS336 = Foreign(
    cs336_style.build,
    DecoderConfig(
        vocab_size=31,
        context_length=23,
        n_layers=3,
        d_model=20,
        n_heads=5,
        d_ff=34,
        tie_embeddings=False,
        **LLAMA,
    ),
    {
        "embedding": "token_embeddings",
        "blocks.{i}.attention_norm": "layers.{i}.ln1",
        "blocks.{i}.attention.query": "layers.{i}.attn.q_proj",
        "blocks.{i}.attention.key": "layers.{i}.attn.k_proj",
        "blocks.{i}.attention.value": "layers.{i}.attn.v_proj",
        "blocks.{i}.attention.out": "layers.{i}.attn.output_proj",
        "blocks.{i}.feed_forward_norm": "layers.{i}.ln2",
        "blocks.{i}.feed_forward.gate": "layers.{i}.ffn.w1",
        "blocks.{i}.feed_forward.up": "layers.{i}.ffn.w3",
        "blocks.{i}.feed_forward.down": "layers.{i}.ffn.w2",
        "final_norm": "ln_final",
        "head": "lm_head",
    },
)
LLMS_FROM_SCRATCH = Foreign(
    llms_from_scratch_style.build,
    DecoderConfig(
        vocab_size=37,
        context_length=17,
        n_layers=2,
        d_model=21,
        n_heads=3,
        d_ff=84,
        position="learned",
        activation="gelu_tanh",
        attention_bias=False,
        tie_embeddings=False,
    ),
    {
        "embedding": "tok_emb",
        "position_embedding": "pos_emb",
        "blocks.{i}.attention_norm": "trf_blocks.{i}.norm1",
        "blocks.{i}.attention.query": "trf_blocks.{i}.att.W_query",
        "blocks.{i}.attention.key": "trf_blocks.{i}.att.W_key",
        "blocks.{i}.attention.value": "trf_blocks.{i}.att.W_value",
        "blocks.{i}.attention.out": "trf_blocks.{i}.att.out_proj",
        "blocks.{i}.feed_forward_norm": "trf_blocks.{i}.norm2",
        "blocks.{i}.feed_forward.up": "trf_blocks.{i}.ff.layers.0",
        "blocks.{i}.feed_forward.down": "trf_blocks.{i}.ff.layers.2",
        "final_norm": "final_norm",
        "head": "out_head",
    },
    norm_kinds=("scale", "shift"),
)
LLMS_FROM_SCRATCH_WITH_QKV_BIAS = Foreign(
    llms_from_scratch_style.build_with_qkv_bias,
    LLMS_FROM_SCRATCH.config.with_(attention_bias=True),
    LLMS_FROM_SCRATCH.places,
    norm_kinds=LLMS_FROM_SCRATCH.norm_kinds,
)
LITGPT = Foreign(
    litgpt_style.build,
    DecoderConfig(
        vocab_size=37,
        context_length=23,
        n_layers=2,
        d_model=22,
        n_heads=6,
        n_kv_heads=3,
        head_dim=4,
        d_ff=34,
        norm_eps=1e-6,
        rope_theta=5000.0,
        rope_layout="half",
        tie_embeddings=False,
        **LLAMA,
    ),
    {
        "embedding": "transformer.wte",
        "blocks.{i}.attention_norm": "transformer.h.{i}.norm_1",
        "blocks.{i}.attention.query": ("transformer.h.{i}.attn.qkv", 0, 24),
        "blocks.{i}.attention.key": ("transformer.h.{i}.attn.qkv", 24, 36),
        "blocks.{i}.attention.value": ("transformer.h.{i}.attn.qkv", 36, 48),
        "blocks.{i}.attention.out": "transformer.h.{i}.attn.proj",
        "blocks.{i}.feed_forward_norm": "transformer.h.{i}.norm_2",
        "blocks.{i}.feed_forward.gate": "transformer.h.{i}.mlp.fc_1",
        "blocks.{i}.feed_forward.up": "transformer.h.{i}.mlp.fc_2",
        "blocks.{i}.feed_forward.down": "transformer.h.{i}.mlp.proj",
        "final_norm": "transformer.ln_f",
        "head": "lm_head",
    },
)
LITGPT_WITH_BIAS = Foreign(
    litgpt_style.build_with_bias,
    LITGPT.config.with_(attention_bias=True, attention_out_bias=True, feed_forward_bias=True),
    LITGPT.places,
)
CORRECT = {
    "torch-nn": TORCH_NN,
    "torch-nn-tied": TORCH_NN_TIED,
    "nanogpt": NANOGPT,
    "nanogpt-without-bias": NANOGPT_WITHOUT_BIAS,
    "cs336": CS336,
    "llms-from-scratch": LLMS_FROM_SCRATCH,
    "llms-from-scratch-with-qkv-bias": LLMS_FROM_SCRATCH_WITH_QKV_BIAS,
    "litgpt": LITGPT,
    "litgpt-with-bias": LITGPT_WITH_BIAS,
}
