"""`python -m analysis.published`: print where every table and figure is; docs/papers.md is that."""

from __future__ import annotations

from analysis.published.places import PAGE, page

if __name__ == "__main__":
    text = page()
    PAGE.write_text(text, encoding="utf-8")
    print(text, end="")
