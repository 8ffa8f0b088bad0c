"""Named configs, each with its source."""

from proof_lm.config import DecoderConfig
from proof_lm.errors import ConfigError

CHAPTER = DecoderConfig(
    vocab_size=32, context_length=16, n_layers=2, d_model=64, n_heads=4, d_ff=128
)  # the course's decoder: every other field at its default; 69,120 parameters

MODERN = DecoderConfig(
    vocab_size=97,
    context_length=64,
    n_layers=3,
    d_model=48,
    n_heads=6,
    n_kv_heads=2,
    d_ff=128,
    norm="rmsnorm",
    rope_layout="half",
    feed_forward="gated",
    activation="silu",
    attention_bias=False,
    attention_out_bias=False,
    feed_forward_bias=False,
    tie_embeddings=False,
)  # Llama 2 in miniature (Touvron et al. 2023): RMSNorm, SwiGLU, grouped queries, no biases, untied

GPT2 = DecoderConfig(
    vocab_size=50257,
    context_length=1024,
    n_layers=12,
    d_model=768,
    n_heads=12,
    d_ff=3072,
    position="learned",
    activation="gelu_tanh",
    dropout=0.1,
    initialization="gpt2",
)  # GPT-2 small (Radford et al. 2019; config.json of openai-community/gpt2): 124,439,808 parameters

SMOLLM2_135M = MODERN.with_(
    vocab_size=49152,
    context_length=8192,
    n_layers=30,
    d_model=576,
    n_heads=9,
    n_kv_heads=3,
    d_ff=1536,
    rope_theta=100000.0,
    tie_embeddings=True,
)  # SmolLM2-135M (Ben Allal et al. 2025; config.json of HuggingFaceTB/SmolLM2-135M-Instruct): 134,515,008

LLAMA_3_1_8B = MODERN.with_(
    vocab_size=128256,
    context_length=131072,
    n_layers=32,
    d_model=4096,
    n_heads=32,
    n_kv_heads=8,
    d_ff=14336,
    rope_theta=500000.0,
)  # Llama 3.1 8B (Grattafiori et al. 2024, table 3): 8,030,261,248 parameters; its RoPE scaling is left out

LLAMA_3_1_405B = LLAMA_3_1_8B.with_(
    n_layers=126, d_model=16384, n_heads=128, n_kv_heads=8, d_ff=53248
)  # Llama 3.1 405B (the same table): 405,853,388,800 parameters

PRESETS: dict[str, DecoderConfig] = {
    "chapter": CHAPTER,
    "modern": MODERN,
    "gpt2": GPT2,
    "smollm2-135m": SMOLLM2_135M,
    "llama-3.1-8b": LLAMA_3_1_8B,
    "llama-3.1-405b": LLAMA_3_1_405B,
}


def preset(name: str) -> DecoderConfig:
    """The preset of that name.

    Raises:
        ConfigError: there is no such preset; the message lists those there are.
    """
    if name not in PRESETS:
        raise ConfigError(f"no preset named {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
