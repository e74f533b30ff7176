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

from analysis.report.sections import Report

report = Report.open(Path(os.environ.get("FDE_SUITE_DIR", ".")))
report.head()

# %% [markdown]
# <h2 id="answer">The answer</h2>

# %%
report.answer()

# %% [markdown]
# <nav aria-label="Contents"><ul>
# <li><a href="#figures">All figures</a></li>
# <li><a href="#workloads">Each workload</a></li><li><a href="#units">Per unit</a></li>
# <li><a href="#money">Money</a></li>
# <li><a href="#published">Published</a></li><li><a href="#steadiness">Steadiness</a></li>
# <li><a href="#trust">Trust</a></li><li><a href="#provenance">Provenance</a></li>
# </ul></nav>

# %%
report.questions()

# %% [markdown]
# <h2 id="figures">All figures</h2>

# %%
report.figures()

# %% [markdown]
# <h2 id="workloads">Each workload</h2>

# %%
report.workloads()

# %% [markdown]
# <h2 id="units">Per unit of work</h2>

# %%
report.units()

# %% [markdown]
# <h2 id="money">Money and batteries</h2>

# %%
report.money()

# %% [markdown]
# <h2 id="published">Published, and in this suite</h2>

# %%
report.published()

# %% [markdown]
# <h2 id="steadiness">How steady the machine was</h2>

# %%
report.steadiness()

# %% [markdown]
# <h2 id="trust">How far to trust it</h2>

# %%
report.trust()

# %% [markdown]
# <h2 id="provenance">Provenance</h2>

# %%
report.provenance()
