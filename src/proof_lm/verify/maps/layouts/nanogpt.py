"""nanoGPT (github.com/karpathy/nanoGPT, ``model.py``): GPT-2's names, with weights (out, in) and exact GELU;
minGPT has them too, with the other one."""

from __future__ import annotations

from dataclasses import replace

from proof_lm.config import DecoderConfig
from proof_lm.errors import MapError
from proof_lm.verify.maps.foreign import Foreign
from proof_lm.verify.maps.layouts.layout import Layout, fields_from_shapes, make_config
from proof_lm.weights.families.gpt2 import GPT2
from proof_lm.weights.names import Source


def _source_of(name: str) -> Source:
    return replace(GPT2.source_of(name), transposed=False)


def _read_config(foreign: Foreign) -> DecoderConfig:
    """LayerNorm, learned positions, plain feed-forward layer with the exact GELU, if no layer says otherwise."""
    n_heads = foreign.declared_count("n_head")
    if n_heads is None:
        raise MapError("no attribute n_head, of the module or of its config, says how many heads there are")
    shape = foreign.shape("transformer.h.0.attn.c_attn.weight")
    if len(shape) == 2 and shape[1] == 3 * shape[0]:
        raise MapError(
            f"transformer.h.0.attn.c_attn.weight is {list(shape)}, stored (in, out) as transformers' GPT-2 does"
        )
    config = {
        **fields_from_shapes(foreign, _source_of, n_heads=n_heads, default_eps=1e-5),
        "context_length": foreign.shape("transformer.wpe.weight")[0],
        "position": "learned",
        "activation": foreign.activation("gelu"),
    }
    return make_config(config)


NANOGPT = Layout("nanoGPT", _source_of, _read_config)
