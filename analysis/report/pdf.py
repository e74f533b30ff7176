"""The report on paper: report.pdf, from report.html."""

from __future__ import annotations

import logging
from pathlib import Path

from analysis.suite.records import SuiteError
from analysis.suite.suite_folder import suite_id
from contract import files
from contract.places import with_extra

PACKAGES = "libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0"  # as in lab/packages.sh


def write(folder: Path) -> Path:
    """Write report.pdf beside the report.html of a suite; returns its path. Raises SuiteError."""
    suite_id(folder)  # that it is a suite's folder, with files and folders alone
    page = folder / "report.html"
    if not page.is_file():
        raise SuiteError("no-report", folder=folder)
    try:
        import weasyprint
    except ModuleNotFoundError:
        raise SuiteError("no-weasyprint", command=with_extra("pdf")) from None
    except OSError:
        raise SuiteError("no-page-library", packages=PACKAGES) from None
    logging.getLogger("weasyprint").setLevel(logging.ERROR)  # it warns of CSS that is not for paper
    # The page holds all that it shows; nothing is fetched from anywhere.
    fetcher = weasyprint.urls.URLFetcher(allowed_protocols=["data"])
    document = weasyprint.HTML(filename=str(page), url_fetcher=fetcher).write_pdf()
    path = folder / "report.pdf"
    try:
        files.write(path, [document])
    except OSError as error:
        raise SuiteError("pdf-unwritable", path=path.name, reason=error.strerror) from error
    return path
