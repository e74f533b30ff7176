# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %%
"""The report of one suite. All that is reckoned and drawn stands in the package `analysis`."""

import os
from pathlib import Path

from analysis.page.sections import Report

report = Report.open(Path(os.environ.get("FDE_SUITE_DIR", ".")))
report.head()

# %% [markdown]
# <nav><ul>
# <li><a href="#answer">Answer</a></li><li><a href="#trust">How far to trust it</a></li>
# <li><a href="#workloads">Workloads</a></li><li><a href="#money">Money</a></li>
# <li><a href="#published">Published</a></li><li><a href="#provenance">Provenance</a></li>
# </ul></nav>
#
# <h2 id="answer">The answer</h2>

# %%
report.answer()

# %% [markdown]
# <h2 id="trust">How far to trust it</h2>

# %%
report.trust()

# %% [markdown]
# <h2 id="workloads">The workloads</h2>

# %%
report.workloads()

# %% [markdown]
# <h2 id="money">Money and batteries</h2>

# %%
report.money()

# %% [markdown]
# <h2 id="published">Published and measured here</h2>

# %%
report.published()

# %% [markdown]
# <h2 id="provenance">Provenance</h2>

# %%
report.provenance()
