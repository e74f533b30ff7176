# What is about the repository: its lab, tests, benchmarks, documentation. `make` alone lists it. ./fde is the testbed.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

TARGET ?= lab
SUITE ?= smoke
INVENTORY ?= ansible/inventory/$(TARGET)
PYTHON ?= python3
export FDE_BUILD ?= $(CURDIR)/build
export FDE_LAB_DIR ?= $(FDE_BUILD)/lab
export PYTHONPATH := $(CURDIR)
export ANSIBLE_CONFIG := $(CURDIR)/ansible/ansible.cfg
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Hundreds of processes import the same libraries: without its cache each compiles them anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
FDE := $(PY) -m controller
# One word of the shell, whatever it holds.
quoted = '$(subst ','\'',$(1))'
PLAN_OPTIONS = $(if $(BLOCKS),--blocks $(BLOCKS)) \
  $(if $(HOURS),--hours $(HOURS)) $(if $(SCALE),--scale $(SCALE)) \
  $(if $(CONFIGURATIONS),--configurations "$(CONFIGURATIONS)") $(if $(SKIP),--skip "$(SKIP)") \
  $(if $(CONFIRM),--confirm $(call quoted,$(CONFIRM)))

# The directories of the labs that an inventory names, each quoted for the shell; none where it is of real hardware.
LABS-lab = $(call quoted,$(FDE_LAB_DIR))
LABS-media = $(LABS-lab)
LABS-two-labs = $(call quoted,$(FDE_LAB_DIR)/first) $(call quoted,$(FDE_LAB_DIR)/second)
DISKS-media = media
NO_BLANKS = $(subst $() ,_,$(INVENTORY))
LABS = $(LABS-$(notdir $(NO_BLANKS)))
THE_INVENTORY = --inventory $(call quoted,$(INVENTORY))
define NEED_PYTHON
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fde: $(PYTHON) is" \
	  "$$($(PYTHON) --version 2>&1): Python 3.11 or newer is needed; set PYTHON=…" >&2; exit 1; }
endef

FIRST := testbed lab lab-down test lint docs

.PHONY: help
help: ## list the steps
	@rest=$$(grep -ohE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | cut -d: -f1 | grep -vxF "$$(printf '%s\n' $(FIRST))" | sort); \
	  for step in $(FIRST) '' $$rest; do \
	    [ -n "$$step" ] || { echo; continue; }; \
	    sed -nE "s/^($$step):.*## (.*)/\1\t\2/p" $(MAKEFILE_LIST) | awk -F '\t' '{printf "  make %-15s %s\n", $$1, $$2}'; done
	@echo "  the steps of the testbed: ./fde --help; docs/commands.md"
	@echo "  variables: TARGET=lab|two-labs|media|…  INVENTORY=path  SUITE=smoke|paper|overnight|…  SCALE=lab"
	@echo "             BLOCKS=n | HOURS=n  CONFIGURATIONS=\"plain opal …\"  SKIP=\"video …\"  PACKAGES=2"

.PHONY: testbed
testbed: ## everything: packages, lab, provisioning, suite, report
	$(NEED_PYTHON)
	@$(PYTHON) -m validation.testbed --target $(TARGET) --suite $(SUITE) $(THE_INVENTORY) \
	  --labs $(LABS) -- $(PLAN_OPTIONS)

.PHONY: packages
packages: ## install the system packages that are missing (the only step that may need root)
	@lab/packages.sh $(if $(LABS),,--without-lab)

# A changed lock makes the environment again. Modules are compiled as they are first imported: most never
# are, and to compile all takes longer than to install them.
PIP_INSTALL := $(VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile --require-hashes
$(VENV)/.locked: requirements.lock
	$(NEED_PYTHON)
	@echo "venv: making .venv from requirements.lock"
	@rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -r $<
	@touch $@

# What is a package of its own here; nothing else is fetched for it.
$(VENV)/.plugins: plugins/fde-instruments/pyproject.toml $(VENV)/.locked
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation \
	  --editable $(<D)
	@touch $@

.PHONY: venv
venv: $(VENV)/.plugins ## the locked virtual environment

$(VENV)/.locked-dev: requirements-dev.lock $(VENV)/.plugins
	@echo "venv: adding requirements-dev.lock"
	@$(PIP_INSTALL) -r $<
	@touch $@

.PHONY: venv-dev
venv-dev: $(VENV)/.locked-dev ## the same with what tests, benchmarks, the documentation and the notebook need

.PHONY: image
image: venv ## build the guest's image, or find it in the cache
	@$(PY) -m lab image

.PHONY: lab-kernel
lab-kernel: venv ## build the kernel of lab/kernel/ from Debian's source again, and compare the bytes: [KEEP=1]
	@LAB_KERNEL=build lab/packages.sh && $(PY) -m lab kernel $(if $(KEEP),--keep)

.PHONY: lab
lab: venv ## start the virtual lab, or with TARGET=two-labs both, TARGET=media with four media; DISKS=model from lab/disk_models.yml
	@for lab in $(or $(LABS),$(LABS-lab)); do $(PY) -m lab up --dir "$$lab" \
	  $(if $(DISKS)$(DISKS-$(TARGET)),--disks $(or $(DISKS),$(DISKS-$(TARGET)))) \
	  $(if $(PACKAGES),--packages $(PACKAGES)); done

.PHONY: lab-down
lab-down: ## stop every virtual lab
	@[ ! -x $(PY) ] || $(PY) -m lab down --dir $(LABS-lab)

.PHONY: examples
examples: venv ## make the bundles of data/examples again, with the tables of this version
	@for old in data/examples/*.tar.gz; do rm -f "$$FDE_BUILD"/example.tar.gz; \
	  $(FDE) publish $$old --out "$$FDE_BUILD"/example.tar.gz >/dev/null && mv "$$FDE_BUILD"/example.tar.gz $$old; done

.PHONY: synthetic
synthetic: venv ## a suite drawn from the figures of Fujimoto et al., labelled synthetic, and its report
	@folder=$$($(PY) -m validation.synthetic data/suites) && $(FDE) report "$$folder"

.PHONY: lint
lint: venv-dev docs ## style, wording, types, layers, playbooks, shell, the links of the documentation
	@ruff check . && ruff format --check .
	@$(PY) -m validation.wording
	@$(PY) -m validation.code_lines
	@mypy
	@lint-imports
	@cd ansible && ansible-lint --offline --profile production --strict
	@git ls-files '*.sh' .ci/run fde | xargs shellcheck
	@git ls-files -z | xargs -0 codespell

# Of what the lock has with the extra `release`, without what we need ourselves.
DIST_VENV = $(call quoted,$(FDE_BUILD)/dist-venv)
.PHONY: dist-venv
dist-venv:
	$(NEED_PYTHON)
	@rm -rf $(DIST_VENV) && $(PYTHON) -m venv $(DIST_VENV)
	@$(DIST_VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-release.lock

.PHONY: audit
audit: dist-venv ## known faults (OSV) of what the locks have, and of the lowest versions allowed; needs the network
	@$(DIST_VENV)/bin/uv pip compile --quiet --all-extras --resolution lowest-direct pyproject.toml -o "$$FDE_BUILD"/lowest.txt
	@for lock in requirements*.lock "$$FDE_BUILD"/lowest.txt; do $(DIST_VENV)/bin/pip-audit --vulnerability-service osv \
	  --progress-spinner off --disable-pip --no-deps -r "$$lock" || failed=1; done; [ -z "$${failed:-}" ]

.PHONY: dist
dist: dist-venv ## wheels and sdists of the testbed, the drive and the instruments, checked, with their bill of materials and sums: build/dist
	@rm -rf "$$FDE_BUILD"/dist
	@PATH=$(DIST_VENV)/bin:"$$PATH"; for project in . drive plugins/fde-instruments; do python -m build --outdir "$$FDE_BUILD"/dist $$project >/dev/null; done; cd "$$FDE_BUILD"/dist; \
	  twine check --strict *.whl *.tar.gz; check-wheel-contents --config $(call quoted,$(CURDIR)/pyproject.toml) *.whl; \
	  cyclonedx-py requirements $(call quoted,$(CURDIR)/requirements.lock) --output-reproducible --output-file sbom.cdx.json; \
	  sha256sum * > SHA256SUMS; ls -l

EXAMPLE := data/examples/lab-one-disk.tar.gz
.PHONY: docs
docs: venv-dev ## the documentation as a site, its links checked, the notebook executed: build/site/index.html
	@parts="$$FDE_BUILD"/site-parts; [ "$$parts"/docs/notebook.md -nt analysis/notebook.ipynb ] || { rm -rf "$$parts"; \
	  mkdir -p "$$parts" "$$FDE_BUILD"/example; tar xzf $(EXAMPLE) -C "$$FDE_BUILD"/example --strip-components 1; \
	  FDE_SUITE_DIR="$$FDE_BUILD"/example jupyter nbconvert --log-level ERROR --to markdown --execute analysis/notebook.ipynb \
	    --output-dir "$$parts"/docs; $(FDE) report "$$FDE_BUILD"/example >/dev/null; \
	  mkdir "$$parts"/example; cp "$$FDE_BUILD"/example/report.html "$$parts"/example; }
	@NO_MKDOCS_2_WARNING=1 mkdocs build --site-dir "$$FDE_BUILD"/site

PYTEST := $(VENV)/bin/pytest
# More at once than processors: most tests wait more than they work. Those of a module share a process as
# far as may be, and with it what the module has set up.
UNIT_OPTIONS := -n $(shell echo $$((2 * $$(nproc)))) --dist worksteal
UNIT_TESTS := $(PYTEST) -m "not lab and not slow" --tier unit --timeout 300 $(UNIT_OPTIONS)
# A guest keeps one processor busy. Each process has a guest of its own and takes one module after another:
# first what looks at a guest as it comes, then Ansible's, which take longest.
LAB_OPTIONS := -n $(shell nproc | awk '{print $$1 < 2 ? 1 : 2}') --dist loadfile --no-loadscope-reorder -v \
  lab ansible agent drive workloads validation

.PHONY: test-unit
test-unit: venv-dev ## tests that need no guest
	@$(UNIT_TESTS)

# A step of its own: below Python 3.12 counting lines slows the tests.
.PHONY: coverage
coverage: venv-dev ## the same, with the share of our lines that they run: COVERAGE=percent is the least
	@COVERAGE_FILE="$$FDE_BUILD"/.coverage $(UNIT_TESTS) --cov --cov-report=term $(if $(COVERAGE),--cov-fail-under=$(COVERAGE))

# pytest ends with 2 where it was interrupted.
.PHONY: test
test: packages venv-dev lint image ## what must hold before a change lands: lint, unit tests, and each kind of thing once on a guest
	@units=0; $(UNIT_TESTS) || units=$$?; [ $$units != 2 ] || exit 2; \
	  $(PYTEST) -m "lab and not slow" --tier lab $(LAB_OPTIONS) && \
	  { [ $$units = 0 ] || { echo "fde: tests that need no guest failed; see their output above the lab's" >&2; exit 1; }; }

# What the best machine here lacks, such as a watchdog device, is tried under QEMU in the end.
.PHONY: test-all
test-all: packages venv-dev lint image ## every test, the long ones and those that need QEMU too (about an hour)
	@failed=0; run() { "$$@" || { [ $$? != 2 ] || exit 2; failed=1; }; }; \
	  run $(PYTEST) -m "not lab" --tier all-unit $(UNIT_OPTIONS); \
	  run $(PYTEST) -m lab --tier all-lab $(LAB_OPTIONS); \
	  run env LAB_MACHINE=tcg $(PYTEST) -m needs --tier all-qemu $(LAB_OPTIONS); \
	  [ $$failed = 0 ] || { echo "fde: tests failed; see the output of each tier above" >&2; exit 1; }

.PHONY: test-drive
test-drive: packages venv-dev ## all tests of the virtual drive, the long ones too, with every host program in the guest
	@$(VENV)/bin/pytest drive

.PHONY: test-faults
test-faults: packages venv ## every fault in a lab of its own: make test-faults [PARTS="power-cut …"] [QUICK=1] [OVERNIGHT=suite]
	@$(PY) -m validation.faults $(if $(QUICK),--quick) $(if $(SEED),--seed $(SEED)) $(if $(OVERNIGHT),--overnight $(OVERNIGHT)) $(PARTS)

.PHONY: test-dangers
test-dangers: packages venv-dev image ## dangerous situations, hostile folders, the fuzzed drive, leaks: test-dangers [FOLDERS=n] [ANSWERS=n] [INPUTS=n]
	@$(PYTEST) -m lab -q agent/tests/test_lab_dangers.py agent/tests/test_lab_namespaces.py \
	  ansible/tests/test_lab_secrets.py || failed=1; \
	  $(PY) -m agent.tests.hostile_folders --count $(or $(FOLDERS),2000) || failed=1; \
	  $(PY) -m instrumentation.tests.hostile_wires --count $(or $(ANSWERS),10000) || failed=1; \
	  $(PY) -m drive.tests.fuzz --inputs $(or $(INPUTS),20000) --out "$$FDE_BUILD"/bench/drive-fuzz.json || failed=1; \
	  $(PY) -m agent.tests.dangers && [ -z "$${failed:-}" ]

.PHONY: test-night
test-night: packages venv ## an hour of the suite overnight in the lab, with three power cuts and a pulled meter, its report and verify
	@$(PY) -m validation.faults.overnight $(if $(SEED),--seed $(SEED)) $(if $(BLOCKS),--blocks $(BLOCKS))

.PHONY: papers
papers: packages venv ## every experiment of the five papers in a lab of its own, at its sizes: make papers [SUITES="paper …"]
	@$(PY) -m validation.papers $(if $(SEED),--seed $(SEED)) $(SUITES)

.PHONY: bench-metrology
bench-metrology: venv-dev ## time and energy against known truth: table, plots, build/bench/metrology.json
	@$(PY) -m validation metrology $(PARTS)

.PHONY: bench-analysis
bench-analysis: venv-dev ## intervals and verdicts against simulated suites: table, build/bench/analysis.json
	@$(PY) -m validation inference $(PARTS)

.PHONY: bench-fairness
bench-fairness: venv ## answers of simulated suites on modelled disks: table, build/bench/fairness.json
	@$(PY) -m validation fairness $(PARTS)

.PHONY: bench-report
bench-report: venv-dev ## the report's speed and size, in a browser, and what axe-core finds: build/bench/report.json
	@$(PY) -m validation report $(PARTS)

.PHONY: bench-first-use
bench-first-use: packages venv image ## mistakes that fde check finds on a guest, and what it predicts: build/bench/first-use.json
	@$(PY) -m validation.first_use $(PARTS)

.PHONY: bench-drive
bench-drive: venv-dev ## speed of the virtual drive: tables, and build/bench/drive.json
	@$(PY) -m validation drive $(PARTS)

.PHONY: clean
clean: lab-down ## remove what was built here; suites and the image cache stay
	@rm -rf build .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .ansible
	@find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
