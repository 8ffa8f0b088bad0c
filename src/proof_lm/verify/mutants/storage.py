"""Faults of saving, loading, materializing and initializing."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from proof_lm.config import DecoderConfig
from proof_lm.dims import Bool, PositionIds, Tensor
from proof_lm.functional import Rotation
from proof_lm.model import ProofLM, initialize
from proof_lm.model.attention import AttentionContext
from proof_lm.model.init import STD
from proof_lm.verify.mutants.mutant import Mutant, become, in_decoder


class ReinitializesGain(ProofLM):
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        result = super().load_state_dict(state_dict, strict, assign)
        with torch.no_grad():
            self.final_norm.weight.fill_(1.0)
        return result


class Reinitializes(ProofLM):
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        result = super().load_state_dict(state_dict, strict, assign)
        initialize(self)
        return result


class ForgetsOnSaving(ProofLM):
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        state = super().state_dict(*args, **kwargs)
        state["final_norm.weight"] = torch.ones_like(state["final_norm.weight"])
        return state


class Tabled(ProofLM):
    """Keeps the rotary table in a buffer that no state dict holds, computed in the constructor only."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        _add_table(self)

    def context(self, positions: PositionIds, visible: Bool[Tensor, "B S"] | None) -> AttentionContext:
        context = super().context(positions, visible)
        assert context.rotation is not None
        dtype = context.rotation.cos.dtype
        cos, sin = (table.to(dtype)[positions][:, None] for table in self.get_buffer("table"))
        rotation = Rotation(cos, sin, context.rotation.layout)
        return AttentionContext(context.backend, context.mask, rotation, context.window)


def _add_table(model: ProofLM) -> None:
    config = model.config
    pair = torch.arange(0, config.head_width, 2, dtype=torch.float64)
    angles = torch.arange(config.context_length)[:, None] * config.rope_theta ** (-pair / config.head_width)
    model.register_buffer("table", torch.stack([angles.cos(), angles.sin()]), persistent=False)


class ScalesTheUpProjection(ProofLM):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config.with_(initialization="normal"))
        self.config = config
        scale = 1.0 / math.sqrt(2 * config.n_layers)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith(("attention.out.weight", "up.weight")):
                    parameter.mul_(scale)


class SkipsInitialization(ProofLM):
    def __init__(self, config: DecoderConfig) -> None:
        with torch.device("meta"):
            super().__init__(config)
        self.to_empty(device="cpu")
        for name, parameter in self.named_parameters():  # what torch.nn would leave behind
            if parameter.dim() > 1:
                nn.init.kaiming_uniform_(parameter, a=math.sqrt(5))
            else:
                nn.init.constant_(parameter, float(name.endswith("weight")))


class DrawsUniform(ProofLM):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    parameter.uniform_(-STD * math.sqrt(3.0), STD * math.sqrt(3.0))


class CopiesTheFirstBlock(ProofLM):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        for block in self.blocks[1:]:
            block.load_state_dict(self.blocks[0].state_dict())


class NotCut(ProofLM):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1:
                    is_table = name.startswith("embedding") and not config.tie_embeddings
                    parameter.normal_(std=1.0 if is_table else math.sqrt(2.0 / sum(parameter.shape)))


def _tabled(model: ProofLM) -> None:
    become([model], Tabled)
    _add_table(model)


MUTANTS = (
    Mutant(
        "gain-reset-after-loading",
        "A gain is set to 1 after loading.",
        ("save-load",),
        in_decoder(ReinitializesGain),
    ),
    Mutant(
        "reinitialized-after-loading",
        "Initialization runs once more at the end of loading.",
        ("save-load", "materialization"),
        in_decoder(Reinitializes),
        source="huggingface/transformers#46620",
        ids=("O69",),
    ),
    Mutant("forgotten-on-saving", "A gain is saved as 1.", ("save-load",), in_decoder(ForgetsOnSaving)),
    Mutant(
        "table-lost-on-meta",
        "The rotary table is computed in the constructor and in no state dict, so materializing loses it.",
        ("materialization",),
        _tabled,
        source="huggingface/transformers#45902",
        ids=("O68",),
    ),
    Mutant(
        "init-scaled-on-the-wrong-matrix",
        "The up-projection gets the std that is the down-projection's.",
        ("initialization",),
        in_decoder(ScalesTheUpProjection),
        {"initialization": "gpt2"},
        "karpathy/llama2.c#579",
        ids=("O71",),
    ),
    Mutant(
        "init-without-effect",
        "Matrices keep the framework's default initialization.",
        ("initialization",),
        in_decoder(SkipsInitialization),
        source="huggingface/transformers#43847",
        ids=("O72",),
    ),
    Mutant(
        "init-uniform",
        "Weights are uniform, with the declared standard deviation.",
        ("initialization",),
        in_decoder(DrawsUniform),
    ),
    Mutant(
        "layers-start-alike",
        "Every block is a copy of the first.",
        ("initialization",),
        in_decoder(CopiesTheFirstBlock),
    ),
    Mutant(
        "init-not-cut",
        "Weights declared truncated lie beyond three standard deviations.",
        ("initialization",),
        in_decoder(NotCut),
        {"initialization": "truncated_normal", "tie_embeddings": False},
    ),
)
