"""The phone's page of a running suite."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from contract import files
from contract.journal import TERMINAL
from contract.status import SuiteStatus
from controller.session.progress_text import about, answers, counted, minutes, scope

if TYPE_CHECKING:
    from jinja2 import Template

RELOAD_S = 5
# The session writes every 5 s, but while it starts or fetches; so much older, it is gone.
STALE_S = 120


def render(status: SuiteStatus) -> str:
    """Return the page of a status; one whose suite has ended reloads no more."""
    return _template().render(
        status=status,
        state=status.state.replace("-", " "),
        ended=status.state in TERMINAL,
        share=status.finished / status.runs if status.runs else 0.0,
        reload_s=RELOAD_S,
        stale_s=STALE_S,
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # not for every command

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"minutes": minutes, "about": about, "counted": counted}
    environment.filters |= {"answers": answers, "scope": scope}
    return environment.get_template("status.html.j2")


def write(path: Path, status: SuiteStatus) -> None:
    """Write the page whole, so that a reload never sees half of it."""
    files.write(path, [render(status).encode()], sync=False)
