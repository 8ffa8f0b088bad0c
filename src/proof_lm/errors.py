"""The exception tree: everything a caller can be told to put right derives from ``ProofLMError``."""


class ProofLMError(Exception):
    """Base of every error that ProofLM raises on purpose; its message says what to do."""


class ConfigError(ProofLMError, ValueError):
    """A configuration field, or a combination of fields, is out of its range."""


class InputError(ProofLMError, ValueError):
    """A tensor handed to the model has the wrong shape, dtype or values."""


class CacheError(ProofLMError, ValueError):
    """A key/value cache does not fit the model, the batch, or the tokens still to come."""


class WeightsError(ProofLMError, ValueError):
    """A weights file or directory is missing, damaged, or does not describe a decoder we can build."""


class TextError(ProofLMError, ValueError):
    """A tokenizer is missing or damaged, or a text cannot be encoded."""


class TargetError(ProofLMError, ValueError):
    """The target of a command cannot be found or loaded."""


class MapError(ProofLMError, ValueError):
    """A foreign module's parameters cannot be laid out as a decoder's; the message says which and why."""
