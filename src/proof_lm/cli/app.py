"""The command ``proof-lm``."""

from __future__ import annotations

import sys

import typer

from proof_lm import __version__
from proof_lm.cli.convert import convert
from proof_lm.cli.doctor import doctor
from proof_lm.cli.generate import generate
from proof_lm.cli.mutants import mutants
from proof_lm.cli.replay import replay
from proof_lm.cli.sheet import sheet
from proof_lm.cli.verify import verify
from proof_lm.cli.zoo import zoo
from proof_lm.errors import ProofLMError

app = typer.Typer(
    name="proof-lm",
    help="A decoder-only Transformer whose every claim can be checked.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (verify, replay, mutants, zoo, generate, sheet, convert, doctor):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"proof-lm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say which."),
) -> None:
    pass


def main() -> None:
    """Runs the command line; what the user can put right is one line on standard error and exit status 2."""
    try:
        app()
    except ProofLMError as error:
        typer.echo(f"proof-lm: {error}", err=True)
        sys.exit(2)
