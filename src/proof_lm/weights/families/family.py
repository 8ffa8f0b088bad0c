"""What a family of Hugging Face models must tell, and the fields of its ``config.json``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof_lm.config import DecoderConfig
from proof_lm.errors import WeightsError
from proof_lm.weights.documents import first_few
from proof_lm.weights.names import SourceOf

# Hugging Face's names of activations -> ours. "gelu_new" and "gelu_pytorch_tanh" are the same formula.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}

# Fields of any transformers config that do not change the logits: provenance, storage, tokens,
# initialization, outputs, labels of classifiers, and the generation settings that old configs carry.
_HARMLESS_FIELDS = """
    _name_or_path architectures model_type transformers_version torch_dtype dtype transformers.js_config
    _attn_implementation _attn_implementation_autoset attn_implementation _commit_hash unsloth_version
    unsloth_fixed is_llama_config
    bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id mask_token_id decoder_start_token_id
    tokenizer_class prefix task_specific_params finetuning_task
    initializer_range initializer_factor use_cache is_decoder chunk_size_feed_forward torchscript use_bfloat16
    return_dict return_dict_in_generate output_attentions output_hidden_states output_scores
    gradient_checkpointing tf_legacy_loss
    id2label label2id num_labels problem_type summary_type summary_use_proj summary_activation
    summary_proj_to_labels summary_first_dropout
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature
    top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences forced_bos_token_id
    forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens
"""
# Fields of any transformers config that would change the function unless they hold one of these values.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "tie_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "auto_map": (None,),
    "layer_types": (None,),
}


@dataclass(frozen=True)
class Family:
    """A family of Hugging Face models.

    Attributes:
        name: for messages.
        model_types: values of ``model_type`` in ``config.json`` that it reads.
        read_config: our config, from the fields of ``config.json``.
        write_config: the fields of ``config.json``, from our config (with ``rope_layout`` "half").
        obstacles: what in a config the family cannot express, each as "field = value".
        source_of: where one of our tensors lies, in the names that transformers writes.
        prefix: what base-model checkpoints leave out of every name but the head's.
        not_parameters: names of stored tensors that are no parameters.
    """

    name: str
    model_types: tuple[str, ...]
    read_config: Callable[[ConfigFields], DecoderConfig]
    write_config: Callable[[DecoderConfig], dict[str, Any]]
    obstacles: Callable[[DecoderConfig], list[str]]
    source_of: SourceOf
    prefix: str
    not_parameters: re.Pattern[str]


class ConfigFields:
    """The fields of a ``config.json``, of which none that could change the function goes unread.

    Args:
        where: the file, for messages.
        fields: its content.
    """

    def __init__(self, where: Path, fields: dict[str, Any]) -> None:
        self.where = where
        self._fields = fields
        self._unread = set(fields) - set(_HARMLESS_FIELDS.split())

    def require(self, *names: str) -> list[Any]:
        """The values of these fields.

        Raises:
            WeightsError: some are missing; the message names them all.
        """
        missing = [name for name in names if self._fields.get(name) is None]
        if missing:
            raise WeightsError(f"{self.where} lacks {', '.join(missing)}")
        return [self.get(name, None) for name in names]

    def get(self, name: str, default: Any) -> Any:
        """The value of a field, or the default that transformers gives it."""
        self._unread.discard(name)
        return self._fields.get(name, default)

    def must_be(self, name: str, *allowed: object, default: object, why: str) -> None:
        """Refuse a field whose value we cannot express.

        Raises:
            WeightsError: the field, or its default where it is absent, is none of ``allowed``.
        """
        value = self.get(name, default)
        if value not in allowed:
            note = "" if name in self._fields else " by default"
            raise WeightsError(f"{self.where}: {name} is {value!r}{note}; {why}")

    def activation(self, name: str, default: str) -> str:
        """Our name of the activation in that field.

        Raises:
            WeightsError: it is none of ours.
        """
        value = self.get(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise WeightsError(f"{self.where}: {name} is {value!r}; those read are {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def finish(self) -> None:
        """Refuse what is left unread.

        Raises:
            WeightsError: a field would change the function, or is unknown.
        """
        for name, allowed in _NEUTRAL.items():
            self.must_be(name, *allowed, default=allowed[0], why="ProofLM has no such thing")
        if self._unread:
            raise WeightsError(
                f"{self.where} has fields that are not understood and may change the function: "
                f"{first_few(sorted(self._unread))}; remove them from the file if they do not"
            )


def obstacles(config: DecoderConfig, needed: dict[str, object]) -> list[str]:
    """The fields of ``config`` that do not hold the needed value, each as "field = value"."""
    return [
        f"{name} = {getattr(config, name)!r}"
        for name, value in needed.items()
        if getattr(config, name) != value
    ]
