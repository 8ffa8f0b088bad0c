"""A small random Llama of transformers, as a target of ``proof-lm verify``."""

from torch import nn


def build() -> nn.Module:
    """Two layers of width 24, grouped heads, both attention implementations."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=31,
        hidden_size=24,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=4,
        max_position_embeddings=29,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()
