"""Violations that were examined by hand, and what each comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proof_lm.verify.verdict import ContractResult, Verdict

Kind = Literal["by design", "defect", "rounding"]


@dataclass(frozen=True)
class Explanation:
    """Why a class violates some contracts.

    Attributes:
        contracts: those that it violates for this reason.
        kind: "by design" where the model is not meant to keep them, "defect" where it is, "rounding" where the
            contract asks for equal bits and the model's kernels get other shapes from other data.
        sentence: what happens.
        only_reach: whether it explains only that an influence is missing, so that a leak found by the same contract
            stays unexplained.
    """

    contracts: frozenset[str]
    kind: Kind
    sentence: str
    only_reach: bool = False

    def covers(self, result: ContractResult) -> bool:
        """Whether it says why this contract is violated."""
        if result.name not in self.contracts:
            return False
        found = [m for m in result.measurements if m.verdict is Verdict.VIOLATED]
        return not self.only_reach or (bool(found) and all(m.is_reach for m in found))


def _design(contracts: str, sentence: str, *, only_reach: bool = False) -> Explanation:
    return Explanation(frozenset(contracts.split()), "by design", sentence, only_reach)


def _defect(contracts: str, sentence: str) -> Explanation:
    return Explanation(frozenset(contracts.split()), "defect", sentence)


_FOUND: tuple[tuple[Explanation, str], ...] = (
    (
        _design(
            "live-parameters",
            "Parameters of cross-attention, of another modality or of a pooler take part only with inputs beside "
            "tokens.",
            only_reach=True,
        ),
        """
        BartForCausalLM BigBirdForCausalLM BigBirdPegasusForCausalLM BlenderbotForCausalLM
        BlenderbotSmallForCausalLM MBartForCausalLM MarianForCausalLM MvpForCausalLM PLBartForCausalLM
        PegasusForCausalLM Phi4MultimodalForCausalLM ProphetNetForCausalLM TrOCRForCausalLM
        WhisperForCausalLM XLNetLMHeadModel
        """,
    ),
    (
        _design(
            "padding",
            "Positions are places in the row, padding included, and no argument gives others: a row padded on the "
            "left, or inside, is another row.",
        ),
        """
        BartForCausalLM BigBirdPegasusForCausalLM BlenderbotForCausalLM BlenderbotSmallForCausalLM
        MBartForCausalLM MarianForCausalLM MvpForCausalLM PLBartForCausalLM PegasusForCausalLM
        RoFormerForCausalLM TrOCRForCausalLM WhisperForCausalLM XLNetLMHeadModel
        """,
    ),
    (
        _design(
            "causality input-gradients live-parameters",
            "A token sees only the 4 keys that an index selects, and the choice has no gradient.",
            only_reach=True,
        ),
        "AXK2ForCausalLM DeepseekV32ForCausalLM Qwen4ExpForCausalLM",
    ),
    (
        _design(
            "padding cache",
            "A recurrent layer skips padding by putting zeros in: inside a row its state decays all the same, and a "
            "single token beside a cache is never taken for padding.",
        ),
        """
        BambaForCausalLM Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM Qwen4ExpForCausalLM
        Zamba2ForCausalLM ZambaForCausalLM ZayaForCausalLM
        """,
    ),
    (
        _design(
            "causality input-gradients prefix",
            "With attn_type 'bi', the default, every token sees every other: it is trained by permutations, with a "
            "mask that the caller gives.",
        ),
        "XLNetLMHeadModel",
    ),
    (
        _design(
            "prefix padding",
            "The 5 keys of the greatest score are kept; scores of exp(A softplus(x)) are often 1 exactly, and which "
            "of equal ones stay is left to the sort.",
        ),
        "DogeForCausalLM",
    ),
    (
        _defect(
            "causality input-gradients prefix padding",
            "The relative bias of the predicting stream is laid out as (time, stream, head) and read as (stream, head, "
            "time): a position takes the bias of other positions, later ones among them. With permute(0, 1, 4, 2, 3) "
            "in the place of permute(0, 2, 1, 4, 3) no token moves an earlier position.",
        ),
        "ProphetNetForCausalLM",
    ),
    (
        _defect(
            "cache",
            "Without position ids a call with a cache counts positions from 0, not from the cache's length; "
            "generate gives them.",
        ),
        "BambaForCausalLM",
    ),
    (
        _defect(
            "cache",
            "Several tokens beside a warm cache begin with an empty recurrent state: only single tokens continue it.",
        ),
        "ZambaForCausalLM",
    ),
    (
        _defect(
            "padding",
            "The mask does not reach the recurrent block: padding on the left enters the next tokens by its "
            "convolution.",
        ),
        "RecurrentGemmaForCausalLM",
    ),
    (
        _defect(
            "prefix",
            "Rows of one token: the shift of shape (B, D) is broadcast over (B, 1, D), which gives logits of shape "
            "(B, B, V).",
        ),
        "RwkvForCausalLM",
    ),
    (
        _defect(
            "input-gradients padding live-parameters",
            "In eval mode the state is always written in place, so that no gradient can be taken.",
        ),
        "RwkvForCausalLM",
    ),
    (_design("padding", "It says that it does not use the mask."), "RwkvForCausalLM"),
    (
        _defect("padding", "Blocks of the compressed keys are averaged with the padding in them."),
        "DeepseekV4ForCausalLM",
    ),
    (
        _design(
            "position-shift",
            "Keys are compressed in blocks that are counted from position 0: positions must begin there.",
        ),
        "DeepseekV4ForCausalLM",
    ),
    (
        _design(
            "causality cache prefix padding",
            "All tokens that are given are context that every token sees (a prefix model); id 0 is padding; beside "
            "a cache the whole row must be given.",
        ),
        "CpmAntForCausalLM",
    ),
)

EXPLAINED: dict[str, tuple[Explanation, ...]] = {}
for _explanation, _names in _FOUND:
    for _name in _names.split():
        EXPLAINED[_name] = (*EXPLAINED.get(_name, ()), _explanation)


def explanations(name: str, result: ContractResult) -> tuple[Explanation, ...]:
    """What is known of that class's violation of a contract."""
    return tuple(known for known in EXPLAINED.get(name, ()) if known.covers(result))
