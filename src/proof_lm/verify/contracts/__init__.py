"""The contracts, one file a concept, in the order in which they are judged and reported."""

from proof_lm.verify.contract import Contract
from proof_lm.verify.contracts.accounting import ACCOUNTING
from proof_lm.verify.contracts.batch import BATCH
from proof_lm.verify.contracts.cache import CACHE
from proof_lm.verify.contracts.causality import CAUSALITY
from proof_lm.verify.contracts.grouped_heads import GROUPED_HEADS
from proof_lm.verify.contracts.loss import LOSS
from proof_lm.verify.contracts.norm import NORM
from proof_lm.verify.contracts.oracle_agreement import GRADIENTS, LOGITS
from proof_lm.verify.contracts.padding import PADDING
from proof_lm.verify.contracts.residual import RESIDUAL
from proof_lm.verify.contracts.rope import ROPE
from proof_lm.verify.contracts.save_load import SAVE_LOAD
from proof_lm.verify.contracts.tying import TYING

CONTRACTS: tuple[Contract, ...] = (
    LOGITS,
    GRADIENTS,
    CAUSALITY,
    BATCH,
    ROPE,
    GROUPED_HEADS,
    NORM,
    RESIDUAL,
    CACHE,
    TYING,
    SAVE_LOAD,
    ACCOUNTING,
    LOSS,
    PADDING,
)

__all__ = ["CONTRACTS"]
