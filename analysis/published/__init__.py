"""Figures of the papers, compared with ours."""
