"""The report as a page: words, tables, sections, and how the notebook becomes HTML."""
