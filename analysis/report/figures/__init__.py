"""Pictures: colour-blind safe, fit for print, every axis with its unit."""

import os
from contextlib import suppress

from contract.errors import ControllerError
from contract.places import state_folder


def _load_fonts() -> None:
    """Import Matplotlib's fonts; what it and fontconfig note of them is kept in our folder."""
    cache = os.environ.get("XDG_CACHE_HOME")
    with suppress(ControllerError):  # without a home they take a temporary folder
        os.environ.setdefault("MPLCONFIGDIR", str(state_folder() / "matplotlib"))
        os.environ["XDG_CACHE_HOME"] = str(state_folder())
    try:
        import matplotlib.font_manager  # noqa: F401
    finally:
        os.environ.pop("XDG_CACHE_HOME", None)
        os.environ |= {"XDG_CACHE_HOME": cache} if cache is not None else {}


_load_fonts()
