"""Random weights on which a fault shows."""

import torch

from proof_lm.config import DecoderConfig
from proof_lm.model import ProofLM


def randomized(config: DecoderConfig, seed: int) -> ProofLM:
    """A decoder on which every fault shows: no gain is 1, no bias is 0, no attention is uniform.

    Matrices are N(0, 1/d_in), the embedding N(0, 1), gains 1 + N(0, 0.3^2), biases N(0, 0.3^2). Initial
    values (tiny scores, gains of 1, biases of 0) would hide a missing gain, bias or mask.
    """
    with torch.device("meta"):
        model = ProofLM(config)
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.copy_(0.3 * noise + float("norm.weight" in name))
            else:
                parameter.copy_(noise if "embedding" in name else noise / parameter.shape[1] ** 0.5)
    return model
