"""Public reports of decoder bugs, and which planted fault stands for each.

``O`` are bugs, ``N`` reports that were no bugs; ``cs336:`` are faults against which Stanford CS336's public tests were
measured. A fault names its reports in ``Mutant.ids``, a control in ``Control.id``.
"""

from proof_lm.verify.mutants import MUTANTS
from proof_lm.verify.mutants.controls import CONTROLS

REPORTS: dict[str, str] = {
    "N01": "karpathy/nanochat#743",
    "N02": "ggml-org/llama.cpp#1925",
    "N03": "openai/gpt-2#49",
    "N04": "huggingface/transformers#25420",
    "N05": "huggingface/transformers#35066",
    "N06": "meta-pytorch/torchtune#949",
    "N07": "ggml-org/llama.cpp#25315",
    "N08": "huggingface/transformers#25199",
    "N09": "ml-explore/mlx#2836",
    "N10": "jadore801120/attention-is-all-you-need-pytorch#177",
    "N11": "lucidrains/x-transformers#153",
    "N12": "mosaicml/llm-foundry#1464",
    "O01": "huggingface/transformers#48745",
    "O02": "keras-team/keras#23038",
    "O03": "facebookresearch/xformers#103",
    "O04": "meta-pytorch/torchtune#959",
    "O05": "pytorch/pytorch#108108",
    "O06": "hyprstream/hyprstream#1521",
    "O07": "google/flax#5591",
    "O08": "huggingface/transformers#39408",
    "O09": "unslothai/unsloth#8253",
    "O10": "huggingface/transformers#31673",
    "O11": "huggingface/transformers#41443",
    "O12": "huggingface/transformers#38690",
    "O13": "pytorch/pytorch#101967",
    "O14": "huggingface/transformers#382",
    "O15": "huggingface/nanoVLM#204",
    "O16": "huggingface/transformers#46634",
    "O17": "huggingface/candle#3582",
    "O18": "lucidrains/graph-transformer-pytorch#2",
    "O19": "NVIDIA/Megatron-LM#5542",
    "O20": "piotrpiekos/MoSA#3",
    "O21": "unslothai/unsloth#3699",
    "O22": "unslothai/unsloth#1066",
    "O23": "ndif-team/nnsight#673",
    "O24": "ml-explore/mlx-lm#1906",
    "O25": "ml-explore/mlx-lm#439",
    "O26": "scouzi1966/maclocal-api#92",
    "O27": "jsbaan/transformer-from-scratch#6",
    "O28": "reczoo/FuxiCTR#30",
    "O29": "labmlai/annotated_deep_learning_paper_implementations#146",
    "O30": "keras-team/keras-hub#1429",
    "O31": "NVIDIA-NeMo/Megatron-Bridge#1818",
    "O32": "apple/axlearn#842",
    "O33": "PrimeIntellect-ai/prime-rl#2681",
    "O34": "fkodom/grouped-query-attention-pytorch#5",
    "O35": "huggingface/nanotron#427",
    "O36": "keras-team/keras-hub#1544",
    "O37": "pegainfer-project/pegainfer#220",
    "O38": "sgl-project/sglang#35171",
    "O39": "Xilinx/mlir-air#1948",
    "O40": "Lightning-AI/litgpt#2217",
    "O41": "huggingface/transformers#25104",
    "O42": "lablup/mlxcel#1324",
    "O43": "EleutherAI/gpt-neox#1003",
    "O44": "huggingface/transformers#25681",
    "O45": "ml-explore/mlx-lm#1097",
    "O46": "Lightning-AI/litgpt#2153",
    "O47": "rasbt/LLMs-from-scratch#1048",
    "O48": "huggingface/transformers#37574",
    "O49": "huggingface/transformers#46612",
    "O50": "time-series-foundation-models/lag-llama#81",
    "O51": "ml-explore/mlx-lm#93",
    "O52": "mosaicml/llm-foundry#372",
    "O53": "allenai/OLMo#281",
    "O54": "huggingface/transformers#29402",
    "O55": "vllm-project/vllm#16311",
    "O56": "pytorch/pytorch#189581",
    "O57": "Howuhh/faster-trajectory-transformer#3",
    "O58": "strutive07/transformer-tensorflow2.0#14",
    "O59": "ml-explore/mlx-lm#767",
    "O60": "FareedKhan-dev/train-llm-from-scratch#3",
    "O61": "mlc-ai/mlc-llm#3426",
    "O62": "vllm-project/vllm-metal#665",
    "O63": "lucidrains/x-transformers#352",
    "O64": "google-research/timesfm#493",
    "O65": "rasbt/LLMs-from-scratch#822",
    "O66": "huggingface/accelerate#1204",
    "O67": "huggingface/transformers#42612",
    "O68": "huggingface/transformers#45902",
    "O69": "huggingface/transformers#46620",
    "O70": "huggingface/transformers#35141",
    "O71": "karpathy/llama2.c#579",
    "O72": "huggingface/transformers#43847",
    "O73": "huggingface/transformers#36928",
    "O74": "huggingface/trl#6357",
    "O75": "huggingface/transformers#34191",
    "O76": "unslothai/unsloth-zoo#1023",
    "O77": "pytorch/torchtitan#2206",
    "O78": "linkedin/Liger-Kernel#968",
    "O79": "pytorch/pytorch#124464",
    "O80": "huggingface/transformers#11504",
    "O81": "huggingface/nanotron#256",
    "O82": "NVIDIA-NeMo/Automodel#3882",
    "O83": "karpathy/minGPT#10",
    "O84": "rasbt/reasoning-from-scratch#164",
    "O85": "kingoflolz/mesh-transformer-jax#164",
    "O86": "ml-explore/mlx-lm#388",
    "O87": "huggingface/transformers#2302",
    "O88": "huggingface/transformers#23088",
    "O89": "keras-team/keras-hub#1029",
    "O90": "mistralai/mistral-inference#270",
    "O91": "pytorch/torchtitan#3225",
    "O92": "huggingface/trl#6731",
    "O93": "EleutherAI/gpt-neox#1093",
    "O94": "pytorch/torchtitan#4300",
    "O95": "karpathy/minGPT#23",
    "O96": "huggingface/accelerate#641",
    "O97": "huggingface/transformers#17437",
    "O98": "sgl-project/sglang#27540",
}
"""Where each was reported, as owner/name#number."""

CS336: tuple[str, ...] = (
    "cs336:attn_bf16_p",
    "cs336:attn_detach_p",
    "cs336:batch_mix",
    "cs336:cap_context12",
    "cs336:causal_last_row_only_leak",
    "cs336:causal_none",
    "cs336:causal_off_by_one",
    "cs336:causal_strict_leak16",
    "cs336:embed_detach",
    "cs336:embed_half",
    "cs336:embed_scaled",
    "cs336:fully_masked_guard_none",
    "cs336:head_reshape_wrong",
    "cs336:linear_bias1e-3",
    "cs336:linear_half",
    "cs336:mask_-1e4",
    "cs336:mask_-20",
    "cs336:mask_-50",
    "cs336:mask_after_softmax_norenorm",
    "cs336:mask_inverted",
    "cs336:no_final_norm",
    "cs336:no_residual1",
    "cs336:parallel_block",
    "cs336:post_norm",
    "cs336:residual_detach",
    "cs336:residual_from_norm",
    "cs336:rms_center",
    "cs336:rms_detach",
    "cs336:rms_eps0",
    "cs336:rms_eps1e-6",
    "cs336:rms_eps_outside",
    "cs336:rms_unit_offset",
    "cs336:rope_bf16_angles",
    "cs336:rope_half_split",
    "cs336:rope_ignore_positions",
    "cs336:rope_off_by_one",
    "cs336:rope_on_v",
    "cs336:rope_q_only",
    "cs336:rope_reverse",
    "cs336:rope_theta_1pct",
    "cs336:rope_wrong_axis",
    "cs336:scale_kT",
    "cs336:softmax_eps",
    "cs336:softmax_max_global",
    "cs336:softmax_no_max",
    "cs336:softmax_wrong_dim",
    "cs336:swiglu_gelu",
    "cs336:swiglu_swap",
    "cs336:tied_head",
)

NOT_PLANTED: dict[str, str] = {
    "N06": "a tokenizer's convention: which id ends a text is no property of the decoder",
    "O55": "the decoder has no norm of queries and keys",
    "O62": "the decoder has no soft cap on scores",
    "O70": "the decoder's vocabulary cannot be resized",
    "O80": "random states belong to a training run's checkpoint; a decoder holds none",
    "O81": "the schedule belongs to a training run; a decoder has none",
    "O82": "weight decay over time belongs to a training run's optimizer; a decoder has none",
    "O87": "generation has no repetition penalty",
    "O92": "nothing counts FLOPs yet",
    "O93": "nothing counts FLOPs yet",
    "O94": "nothing counts FLOPs yet",
    "O96": "gradients are clipped by a training loop; a decoder does not clip",
    "cs336:rope_off_by_one": "rotary scores depend on distances alone: it is the control rope-from-one",
    "cs336:softmax_wrong_dim": "every softmax of a decoder runs over the last axis, so an ignored dim changes nothing",
}
"""Why no mutant stands for it."""


def reports_table() -> str:
    """The table as Markdown: each report, the mutant or control that stands for it, and who rejects it."""
    reports = [*REPORTS, *CS336]
    planted = {report: [m for m in MUTANTS if report in m.ids] for report in reports}
    controls = {control.id: control for control in CONTROLS}
    n_bugs = sum(report.startswith("O") for report in reports)
    n_planted = sum(bool(planted[report]) for report in reports if report.startswith("O"))
    n_course = sum(bool(planted[report]) for report in CS336)
    summary = (
        f"{n_planted} of {n_bugs} bugs and {n_course} of {len(CS336)} CS336 faults are planted; "
        f"{len(MUTANTS)} mutants and {len(CONTROLS)} controls in all."
    )
    lines = [
        "# Public reports and planted faults",
        "",
        "Written by `proof-lm mutants --table`; a test keeps it true. `O` are public reports of bugs, `N` reports that",
        "turned out to be no bugs and are controls, which no contract may reject; `cs336` are faults against which the",
        "public tests of Stanford's CS336 were measured. What a mutant is, `proof-lm verify --explain CONTRACT` says.",
        "",
        summary,
        "",
        "| id | report | planted as | rejected by |",
        "|---|---|---|---|",
    ]
    for report in reports:
        source = REPORTS.get(report, "")
        if report in controls:
            control = controls[report]
            lines.append(
                f"| {report} | {source} | control `{control.name}`: {control.what} | none: it is right |"
            )
        elif planted[report]:
            names = "; ".join(f"`{mutant.name}`: {mutant.fault}" for mutant in planted[report])
            rejecting = dict.fromkeys(name for mutant in planted[report] for name in mutant.rejected_by)
            lines.append(f"| {report} | {source} | {names} | {', '.join(rejecting)} |")
        else:
            lines.append(f"| {report} | {source} | not planted: {NOT_PLANTED[report]} | |")
    return "\n".join(lines) + "\n"
