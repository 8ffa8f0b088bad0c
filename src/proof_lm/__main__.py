"""``python -m proof_lm``."""

from proof_lm.cli.app import main

main()
