"""Violations that were examined by hand, and what each comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proof_lm.verify.verdict import ContractResult, Verdict

Kind = Literal["by design", "defect", "rounding"]
ROUNDING = 1e-4  # of float32 logits of order 1 to 10


@dataclass(frozen=True)
class Explanation:
    """Why a class violates some contracts.

    Attributes:
        contracts: those that it violates for this reason.
        kind: "by design" where the model is not meant to keep them, "defect" where it is, "rounding" where the
            contract asks for equal bits and the model's kernels get other shapes from other data, which explains
            no more than rounding makes.
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
        if self.kind == "rounding":
            return bool(found) and all(not m.is_reach and m.measured < ROUNDING for m in found)
        return not self.only_reach or (bool(found) and all(m.is_reach for m in found))


def _design(contracts: str, sentence: str, *, only_reach: bool = False) -> Explanation:
    return Explanation(frozenset(contracts.split()), "by design", sentence, only_reach)


def _defect(contracts: str, sentence: str) -> Explanation:
    return Explanation(frozenset(contracts.split()), "defect", sentence)


_FOUND: tuple[tuple[Explanation, str], ...] = (
    (
        _design(
            "live-parameters",
            "Parameters of cross-attention, of another modality, of a pooler or of a routing table that only a "
            "checkpoint fills take part only with more than tokens and initial weights.",
            only_reach=True,
        ),
        """
        BartForCausalLM BigBirdForCausalLM BigBirdPegasusForCausalLM BlenderbotForCausalLM
        BlenderbotSmallForCausalLM DeepseekV4ForCausalLM FuyuForCausalLM Gemma3ForConditionalGeneration
        GitForCausalLM GotOcr2ForConditionalGeneration MBartForCausalLM MarianForCausalLM
        MossTranscribeDiarizeForConditionalGeneration MusicgenForCausalLM MvpForCausalLM PLBartForCausalLM
        PegasusForCausalLM Phi4MultimodalForCausalLM ProphetNetForCausalLM TrOCRForCausalLM WhisperForCausalLM
        XLNetLMHeadModel
        """,
    ),
    (
        _design(
            "padding",
            "Learned positions, windows or chunks count places in the row, padding included: a row that is padded on "
            "the left, or inside where position ids are taken, is another row.",
        ),
        """
        BartForCausalLM BigBirdPegasusForCausalLM BlenderbotForCausalLM BlenderbotSmallForCausalLM
        GPTNeoForCausalLM Gemma3ForConditionalGeneration Gemma4ForConditionalGeneration
        Gemma4UnifiedForConditionalGeneration Llama4ForCausalLM MBartForCausalLM MarianForCausalLM
        MusicgenForCausalLM MusicgenMelodyForCausalLM MvpForCausalLM PLBartForCausalLM PegasusForCausalLM
        TrOCRForCausalLM WhisperForCausalLM
        """,
    ),
    (
        _design(
            "causality input-gradients live-parameters",
            "A token sees only the keys that an index selects (4 here), and the choice has no gradient.",
            only_reach=True,
        ),
        """
        AXK2ForCausalLM DeepseekV32ForCausalLM DeepseekV4ForCausalLM Dots3NoteForCausalLM GlmMoeDsaForCausalLM
        HYV4ForCausalLM Qwen4ExpForCausalLM
        """,
    ),
    (
        _design(
            "padding cache",
            "A recurrent or convolutional layer skips padding by putting zeros in: inside a row its state decays all "
            "the same, and a single token beside a cache is never taken for padding.",
        ),
        """
        BailingHybridForCausalLM BambaForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM
        GraniteMoeHybridForCausalLM Inkling2ForCausalLM Inkling2LoopForCausalLM InklingForCausalLM JambaForCausalLM
        KimiLinearForCausalLM LaraMiniForCausalLM Lfm2MoeForCausalLM Lfm3ForCausalLM Mamba2ForCausalLM
        MambaForCausalLM MiniMaxForCausalLM NemotronHForCausalLM OlmoHybridForCausalLM Qwen3NextForCausalLM
        Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM Qwen4ExpForCausalLM Zamba2ForCausalLM ZambaForCausalLM
        ZayaForCausalLM
        """,
    ),
    (
        _design(
            "position-shift",
            "Queries and keys get a gain for each channel after they are rotated, which their distance alone does not "
            "survive.",
        ),
        "DoryForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM",
    ),
    (
        Explanation(
            frozenset({"causality", "batch-independence", "padding"}),
            "rounding",
            "An expert takes its tokens together, and how many there are depends on the other tokens.",
        ),
        "DbrxForCausalLM JetMoeForCausalLM LongcatFlashForCausalLM",
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
            "prefix padding cache",
            "The 5 keys of the greatest score are kept; scores of exp(A softplus(x)) are often 1 exactly, and which "
            "of equal ones stay is left to the sort.",
        ),
        "DogeForCausalLM",
    ),
    (
        _design(
            "causality cache prefix padding",
            "All tokens that are given are context that every token sees (a prefix model); id 0 is padding; beside a "
            "cache the whole row must be given.",
        ),
        "CpmAntForCausalLM",
    ),
    (
        _design(
            "causality determinism",
            "LayerDrop and the dropout of reversible layers draw from other generators than the call's (Python's own, "
            "and one that is seeded anew from the clock), so that no two calls in train mode drop the same.",
        ),
        "MusicgenForCausalLM MusicgenMelodyForCausalLM ReformerModelWithLMHead",
    ),
    (
        _design(
            "input-gradients padding live-parameters",
            "Reversible layers refuse gradients in eval mode, as they say.",
        ),
        "ReformerModelWithLMHead",
    ),
    (
        _design("masked-loss", "The loss is the mean over the streams that predict 1 and 2 tokens ahead."),
        "ProphetNetForCausalLM",
    ),
    (_design("padding", "It says that it does not use the mask."), "RwkvForCausalLM"),
    (
        _design(
            "position-shift",
            "Keys are compressed in blocks that are counted from position 0: positions must begin there.",
        ),
        "DeepseekV4ForCausalLM",
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
        "FalconMambaForCausalLM JambaForCausalLM MambaForCausalLM ZambaForCausalLM",
    ),
    (
        _defect(
            "cache padding",
            "Whole rows bound the time step from below (time_step_min), single tokens beside a cache do not; with the "
            "bound at 0 both agree.",
        ),
        "NemotronHForCausalLM Zamba2ForCausalLM",
    ),
    (
        _defect(
            "cache padding",
            "The cache keeps as many keys as sliding_window says, and whole rows have no window: they part from there.",
        ),
        "MoshiForCausalLM",
    ),
    (
        _defect(
            "cache padding",
            "Beside a warm cache the mask is widened by the tokens of an image, whether or not there was one, and so "
            "moves away from the tokens that it is for.",
        ),
        "GitForCausalLM",
    ),
    (
        _defect(
            "padding cache",
            "Patches, hashes of byte groups and the global layers know neither mask nor cache: padding on the left "
            "takes part, and beside a cache all that came before is lost to them.",
        ),
        "BltForCausalLM",
    ),
    (
        _design(
            "live-parameters",
            "The untrained patcher is sure of nothing, so that every byte is a patch, and has nothing to choose from.",
            only_reach=True,
        ),
        "BltForCausalLM",
    ),
    (
        _defect(
            "causality",
            "In eager attention a padding token that sees nothing averages over the whole row, later tokens included, "
            "and hands that on by its patch.",
        ),
        "BltForCausalLM",
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
    (
        _defect(
            "padding",
            "With causal=True the mask of attention is the triangle alone: padding is put to zero, and attended to.",
        ),
        "XLMWithLMHeadModel",
    ),
    (
        _defect("padding cache", "Blocks of the compressed keys are averaged with the padding in them."),
        "DeepseekV4ForCausalLM",
    ),
)

EXPLAINED: dict[str, tuple[Explanation, ...]] = {}
for _explanation, _names in _FOUND:
    for _name in _names.split():
        EXPLAINED[_name] = (*EXPLAINED.get(_name, ()), _explanation)


def explanations(name: str, result: ContractResult) -> tuple[Explanation, ...]:
    """What is known of that class's violation of a contract."""
    return tuple(known for known in EXPLAINED.get(name, ()) if known.covers(result))
