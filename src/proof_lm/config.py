"""``DecoderConfig``: everything that defines a decoder, frozen and validated, with a JSON round trip."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from proof_lm.errors import ConfigError

Norm = Literal["layernorm", "rmsnorm"]
Position = Literal["rope", "learned", "none"]
RopeLayout = Literal["interleaved", "half"]
FeedForward = Literal["mlp", "gated"]
Activation = Literal["gelu", "gelu_tanh", "silu", "relu"]
Initialization = Literal["normal", "gpt2", "truncated_normal"]


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """The complete definition of a decoder-only Transformer.

    The first six fields are required; the defaults of the others make the course's decoder (pre-norm
    LayerNorm, exact GELU, biases, rotary positions on adjacent pairs, tied head). A field left ``None``
    is derived from the others and holds its derived value afterwards.

    Attributes:
        vocab_size: number of token ids, V.
        context_length: longest sequence, in tokens.
        n_layers: number of blocks, L.
        d_model: width of the residual stream, D.
        n_heads: number of query heads, N.
        d_ff: width of the feed-forward layer, F.
        n_kv_heads: number of key/value heads, K; divides ``n_heads``. Derived: ``n_heads``.
        head_dim: width of a head, H. Derived: ``d_model / n_heads``.
        norm: ``"layernorm"`` (Ba et al. 2016) or ``"rmsnorm"`` (Zhang & Sennrich 2019).
        norm_eps: added to the variance, or mean square, under the root.
        norm_bias: whether LayerNorm adds a bias. RMSNorm has none. Derived: true for LayerNorm.
        position: ``"rope"`` (Su et al. 2021), ``"learned"`` (a table of ``context_length`` rows) or ``"none"``.
        rope_theta: base of the rotary frequencies theta^(-2i/H).
        rope_layout: which dimensions rotate together: ``"interleaved"`` (2i, 2i+1) or ``"half"`` (i, i+H/2).
        sliding_window: how many tokens each token sees, W: itself and the W - 1 before it, counted along the
            sequence and not in position ids (Child et al. 2019; Jiang et al. 2023). None: the whole past.
        feed_forward: ``"mlp"`` down(act(up(x))) or ``"gated"`` down(act(gate(x)) * up(x)) (Shazeer 2020).
        activation: ``"gelu"`` (erf), ``"gelu_tanh"``, ``"silu"`` or ``"relu"``.
        attention_bias: biases on the query, key and value projections.
        attention_out_bias: a bias on the projection that leaves attention.
        feed_forward_bias: biases on every projection of the feed-forward layer.
        tie_embeddings: the head multiplies by the embedding matrix; it never has a bias.
        dropout: probability, on the embedding, the attention weights and each branch's output, in training only.
        initialization: ``"normal"`` N(0, 0.02^2), biases 0; ``"gpt2"`` the same with the std of projections
            that write to the residual stream divided by sqrt(2 n_layers) (Radford et al. 2019);
            ``"truncated_normal"`` linear layers with variance 2/(d_in + d_out) and the embedding with std 1,
            both cut at 3 std (Stanford CS336). A tied matrix is drawn as the head.
    """

    vocab_size: int
    context_length: int
    n_layers: int
    d_model: int
    n_heads: int
    d_ff: int
    n_kv_heads: int | None = None
    head_dim: int | None = None
    norm: Norm = "layernorm"
    norm_eps: float = 1e-5
    norm_bias: bool | None = None
    position: Position = "rope"
    rope_theta: float = 10000.0
    rope_layout: RopeLayout = "interleaved"
    sliding_window: int | None = None
    feed_forward: FeedForward = "mlp"
    activation: Activation = "gelu"
    attention_bias: bool = True
    attention_out_bias: bool = True
    feed_forward_bias: bool = True
    tie_embeddings: bool = True
    dropout: float = 0.0
    initialization: Initialization = "normal"

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context_length", "n_layers", "d_model", "n_heads", "d_ff"):
            _require_positive_int(name, getattr(self, name))
        for name, value in _derived(self).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        self._validate()

    @property
    def kv_heads(self) -> int:
        """``n_kv_heads`` as a plain ``int`` (it is never ``None`` once the config exists)."""
        assert self.n_kv_heads is not None
        return self.n_kv_heads

    @property
    def head_width(self) -> int:
        """``head_dim`` as a plain ``int`` (it is never ``None`` once the config exists)."""
        assert self.head_dim is not None
        return self.head_dim

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head, N / K."""
        return self.n_heads // self.kv_heads

    def with_(self, **changes: Any) -> DecoderConfig:
        """A copy with some fields changed; derived fields that held their derived value follow.

        Unlike ``dataclasses.replace``, which keeps every other field as it is,
        ``config.with_(n_heads=8)`` derives ``head_dim`` and ``n_kv_heads`` again where nobody had chosen them.
        """
        unknown = sorted(set(changes) - _FIELD_NAMES)
        if unknown:
            raise ConfigError(_unknown_fields(unknown))
        follow = {name: None for name, value in _derived(self).items() if getattr(self, name) == value}
        return dataclasses.replace(self, **{**follow, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Every field by name, derived ones included: the JSON object of :meth:`to_json`."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """The config as indented JSON; ``DecoderConfig.from_json`` gives an equal config back."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> DecoderConfig:
        """The config with these fields.

        Raises:
            ConfigError: a field is unknown, missing or out of range.
        """
        if not isinstance(fields, dict):
            raise ConfigError(f"a config must be a JSON object, got {type(fields).__name__}")
        unknown = sorted(set(fields) - _FIELD_NAMES)
        if unknown:
            raise ConfigError(_unknown_fields(unknown))
        missing = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING]
        missing = [name for name in missing if name not in fields]
        if missing:
            raise ConfigError(f"config lacks {', '.join(missing)}")
        return cls(**fields)

    @classmethod
    def from_json(cls, text: str) -> DecoderConfig:
        """The config written by :meth:`to_json`.

        Raises:
            ConfigError: the text is not JSON, or not a valid config.
        """
        try:
            fields = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"config is not JSON: {error}") from error
        return cls.from_dict(fields)

    def _validate(self) -> None:
        _require_positive_int("n_kv_heads", self.n_kv_heads)
        _require_positive_int("head_dim", self.head_dim)
        if self.sliding_window is not None:
            _require_positive_int(
                "sliding_window", self.sliding_window, "a positive integer, or None for no window"
            )
        if self.n_heads % self.kv_heads:
            raise ConfigError(
                f"n_kv_heads must divide n_heads = {self.n_heads} so that each KV head serves equally many "
                f"query heads, got n_kv_heads = {self.n_kv_heads}"
            )
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        for name in _FLAGS:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigError(f"{name} must be True or False, got {value!r}")
        if self.norm == "rmsnorm" and self.norm_bias:
            raise ConfigError("norm_bias must be False when norm is 'rmsnorm', which has no bias, got True")
        if self.position == "rope" and self.head_width % 2:
            raise ConfigError(
                f"head_dim must be even when position is 'rope', which rotates pairs, got head_dim = {self.head_dim}"
            )
        _require_number("norm_eps", self.norm_eps, "greater than 0", lambda x: x > 0)
        _require_number("rope_theta", self.rope_theta, "greater than 0", lambda x: x > 0)
        _require_number("dropout", self.dropout, "at least 0 and less than 1", lambda x: 0 <= x < 1)


_FIELD_NAMES = frozenset(field.name for field in dataclasses.fields(DecoderConfig))
_CHOICES: dict[str, tuple[str, ...]] = {
    "norm": get_args(Norm),
    "position": get_args(Position),
    "rope_layout": get_args(RopeLayout),
    "feed_forward": get_args(FeedForward),
    "activation": get_args(Activation),
    "initialization": get_args(Initialization),
}
_FLAGS = ("norm_bias", "attention_bias", "attention_out_bias", "feed_forward_bias", "tie_embeddings")


def _derived(config: DecoderConfig) -> dict[str, Any]:
    """The value that each derived field takes from the others."""
    if config.head_dim is None and config.d_model % config.n_heads:
        raise ConfigError(
            f"d_model must be a multiple of n_heads, or head_dim given, got d_model = {config.d_model} and "
            f"n_heads = {config.n_heads}"
        )
    return {
        "n_kv_heads": config.n_heads,
        "head_dim": 0 if config.d_model % config.n_heads else config.d_model // config.n_heads,
        "norm_bias": config.norm == "layernorm",
    }


def _require_positive_int(name: str, value: object, wanted: str = "a positive integer") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} must be {wanted}, got {value!r}")


def _require_number(name: str, value: object, wanted: str, accepts: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not accepts(value):
        raise ConfigError(f"{name} must be a finite number {wanted}, got {value!r}")


def _unknown_fields(names: list[str]) -> str:
    return (
        f"unknown config field {', '.join(names)}; the fields are {', '.join(get_type_hints(DecoderConfig))}"
    )
