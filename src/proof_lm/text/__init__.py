"""Text to token ids and back: byte-level BPE from a Hugging Face directory or a GGUF file, or plain bytes."""

from proof_lm.text.byte import ByteTokenizer
from proof_lm.text.stream import StreamDecoder
from proof_lm.text.subword import SubwordTokenizer
from proof_lm.text.tokenizer import Tokenizer, load_tokenizer

__all__ = ["ByteTokenizer", "StreamDecoder", "SubwordTokenizer", "Tokenizer", "load_tokenizer"]
