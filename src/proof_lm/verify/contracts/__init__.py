"""The contracts, one file a concept, in the order in which they are judged and reported."""

from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts.accounting import ACTIVATION_MEMORY, FLOPS, PARAMETER_COUNT, TENSOR_SHAPES
from proof_lm.verify.contracts.batch import BATCH
from proof_lm.verify.contracts.cache import CACHE
from proof_lm.verify.contracts.cache_state import CACHE_STATE
from proof_lm.verify.contracts.causality import CAUSALITY
from proof_lm.verify.contracts.compiled import COMPILED
from proof_lm.verify.contracts.config_fields import CONFIG_FIELDS
from proof_lm.verify.contracts.determinism import DETERMINISM
from proof_lm.verify.contracts.documents import DOCUMENTS
from proof_lm.verify.contracts.gradient_directions import GRADIENT_DIRECTIONS
from proof_lm.verify.contracts.gradient_flow import LOSS_GRADIENTS, RECOMPUTATION, UPSTREAM
from proof_lm.verify.contracts.grouped_heads import GROUPED_HEADS
from proof_lm.verify.contracts.half_precision import HALF_PRECISION
from proof_lm.verify.contracts.initialization import INITIALIZATION
from proof_lm.verify.contracts.input_gradients import INPUT_GRADIENTS
from proof_lm.verify.contracts.live_parameters import LIVE_PARAMETERS
from proof_lm.verify.contracts.loss import LOSS
from proof_lm.verify.contracts.materialization import MATERIALIZATION
from proof_lm.verify.contracts.narrow_dtypes import NARROW_DTYPES
from proof_lm.verify.contracts.norm import NORM
from proof_lm.verify.contracts.optimizer_groups import OPTIMIZER_GROUPS
from proof_lm.verify.contracts.oracle_agreement import GRADIENTS, LOGITS
from proof_lm.verify.contracts.padded_generation import PADDED_GENERATION
from proof_lm.verify.contracts.padding import PADDING
from proof_lm.verify.contracts.position_shift import POSITION_SHIFT
from proof_lm.verify.contracts.prefix import PREFIX
from proof_lm.verify.contracts.residual import RESIDUAL
from proof_lm.verify.contracts.rope import ROPE
from proof_lm.verify.contracts.sampling import GREEDY, SAMPLING
from proof_lm.verify.contracts.save_load import SAVE_LOAD
from proof_lm.verify.contracts.sharp_attention import SHARP_ATTENTION
from proof_lm.verify.contracts.side_effects import SIDE_EFFECTS
from proof_lm.verify.contracts.stream import FINAL_NORM, SKIP_PATH
from proof_lm.verify.contracts.tying import TYING
from proof_lm.verify.contracts.window import WINDOW

CONTRACTS: tuple[Contract, ...] = (
    LOGITS,
    GRADIENTS,
    GRADIENT_DIRECTIONS,
    CAUSALITY,
    SHARP_ATTENTION,
    INPUT_GRADIENTS,
    PREFIX,
    WINDOW,
    BATCH,
    DOCUMENTS,
    ROPE,
    POSITION_SHIFT,
    NARROW_DTYPES,
    GROUPED_HEADS,
    NORM,
    RESIDUAL,
    SKIP_PATH,
    FINAL_NORM,
    CACHE,
    CACHE_STATE,
    TYING,
    SAVE_LOAD,
    PARAMETER_COUNT,
    TENSOR_SHAPES,
    FLOPS,
    ACTIVATION_MEMORY,
    LOSS,
    PADDING,
    PADDED_GENERATION,
    DETERMINISM,
    SIDE_EFFECTS,
    LIVE_PARAMETERS,
    CONFIG_FIELDS,
    INITIALIZATION,
    MATERIALIZATION,
    UPSTREAM,
    LOSS_GRADIENTS,
    RECOMPUTATION,
    HALF_PRECISION,
    SAMPLING,
    GREEDY,
    OPTIMIZER_GROUPS,
    COMPILED,
)

__all__ = ["CONTRACTS"]
