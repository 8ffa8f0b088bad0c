"""A prefix alone is computed as it is inside a longer row."""

from collections.abc import Iterator

from proof_lm.verify.contract import Contract
from proof_lm.verify.probe import Inapplicable, Probe
from proof_lm.verify.subjects import Subject
from proof_lm.verify.verdict import Largest, Measurement, Smallest


def check_prefix(subject: Subject, probe: Probe) -> Iterator[Measurement]:
    """Rows cut off after 1, 2, ... tokens (1, a few, and as many as there are heads, for a large subject).

    Their logits must equal those of the whole rows there, so that nothing depends on how many tokens come in: no
    scale, no position, no special case of one token. Rows of other tokens must differ (reach).
    """
    ids = probe.tokens("prefix")
    n_tokens = probe.n_tokens
    if n_tokens == 1:
        raise Inapplicable("context_length is 1: there is no prefix")
    some = {1, probe.n_short, subject.n_heads or 4}
    lengths = sorted(n for n in (some if probe.is_large else range(1, n_tokens)) if n < n_tokens)
    others = probe.other_tokens(ids, "other prefixes")
    for path in subject.paths:
        # the shortest first, and the whole last, for a model that changes with the longest row that it has seen
        cut = [subject.logits(ids[:, :length], path) for length in lengths]
        whole = subject.logits(ids, path)
        worst, reach = Largest(), Smallest()
        for length, logits in zip(lengths, cut, strict=True):
            error = (logits - whole[:, :length]).abs().amax((0, 2))
            worst.see(float(error.max()), f"position {int(error.argmax())} of {length} tokens")
        yield Measurement(path, "max |cut off - whole|", worst.value, probe.logit_bound, worst.where)
        length = lengths[-1]
        moved = (subject.logits(others[:, :length], path) - whole[:, :length]).abs().amax(-1)
        reach.see(float(moved.min()))
        yield Measurement(path, "min |change with other tokens|", reach.value, None)


PREFIX = Contract(
    "prefix",
    "The logits of a row's beginning do not depend on how long the row is.",
    frozenset({"logits"}),
    check_prefix,
    level="quick",
)
