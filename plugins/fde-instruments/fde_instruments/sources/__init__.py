"""Energy sources on the target."""

from pathlib import Path

from contract.problem import wordings_of

PACKAGE = Path(__file__).parents[1]
COVERAGE = PACKAGE / "coverage.toml"
WORDINGS = wordings_of(str(PACKAGE))
