# make report: set up and run the default configuration. make test: set up, run linters and fast tests.
# make check: run every suite there is.
# make fuzz: look for new faults by random draws.
SNAKEMAKE := .venv/bin/snakemake

.PHONY: env report report-h200 docs test fuzz test-cluster lint clean

# The environment alone, with the command .venv/bin/gpushmoo.
env: .venv/run.stamp

report: .venv/run.stamp
	$(SNAKEMAKE) --cores all

# Renders the recorded sweeps of an NVIDIA H200; measures nothing, needs no GPU.
report-h200: .venv/run.stamp
	$(SNAKEMAKE) --cores all --configfile config/full.yaml config/dots.yaml \
		--config run=h200 only=null dataset=reports/reference/nvidia-h200

# The three published documents at their own sizes on a CUDA device: one run, one report.
.PHONY: seeds
seeds: .venv/run.stamp
	$(SNAKEMAKE) --cores all --configfile config/seeds.yaml

# Writes the pages of docs/ whose numbers come from the record; names sentences that are no longer so.
docs: .venv/run.stamp
	PYTHONPATH=docs:workflow/scripts:kernels:reports/chapters .venv/bin/python docs/build.py

# The environment with a Jupyter kernel, and with all that docs/notebook.ipynb imports.
.PHONY: notebook
notebook: .venv/dev.stamp

# The pages as a site: docs/_build/index.html. A link that leads nowhere is an error.
.PHONY: site
site: .venv/dev.stamp
	.venv/bin/sphinx-build -q -n -W --keep-going -c docs . docs/_build

# Chapters keep their tests beside their code.
DOCUMENTS := tests/documents $(wildcard reports/chapters/*/tests)
PYTEST := .venv/bin/python -m pytest -q --dist loadfile --no-loadscope-reorder

# What takes long among the linters runs beside the tests, and has the last word where it fails. More
# workers than the smallest machine has cores: some of the time is waiting.
test: style
	@said=$$(mktemp); $(MAKE) --no-print-directory types >$$said 2>&1 & types=$$!; \
	$(MAKE) --no-print-directory test-code; \
	failed=$$?; wait $$types || { failed=1; cat $$said; }; rm -f $$said; exit $$failed

# All tests but the slow ones and those of documents, cluster and browser.
.PHONY: test-code
test-code: .venv/dev.stamp
	$(PYTEST) -n 3 -m "not fuzz and not slow" tests/workflow tests/unit

# The tests that are marked as slow.
.PHONY: test-slow
test-slow: .venv/dev.stamp
	$(PYTEST) -n 3 -m "slow and not fuzz" tests/workflow tests/unit

# Every suite there is, one line for each: linters, all tests, a short chaos. As root it installs what
# the suites of cluster and browser need.
.PHONY: check
check: .venv/dev.stamp
	@sh tests/check.sh

# Chapters, README, docs/ and the published documents.
.PHONY: test-documents
test-documents: .venv/dev.stamp
	$(PYTEST) -n 2 $(DOCUMENTS)

# Ten runs of the drawn configurations, five of them with all cores busy.
.PHONY: stress
stress: .venv/dev.stamp
	sh tests/stress.sh

# Twenty times as many draws as `make test`, new ones each time, and what is too long for every change:
# full products, other architectures. `make fuzz SEED=7` repeats that fuzz's draws; TESTS: some files.
SEED := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
fuzz: .venv/dev.stamp $(if $(TESTS),,test-documents)
	@echo "make fuzz SEED=$(SEED)"
	@.venv/bin/python -m pytest -q -n 4 --dist loadfile -m "hypothesis or fuzz" \
		--hypothesis-profile=fuzz --hypothesis-seed=$(SEED) \
		$(or $(TESTS),tests/workflow tests/unit $(DOCUMENTS)) \
		|| { echo "To repeat it: make fuzz SEED=$(SEED)"; exit 1; }

# Instruments that attack the project; bounded, unattended, repeatable by the seed that they print.
# Figures: results/chaos/*.json. `make chaos SEED=7 REPLAY=12` plays round 12 of that run alone.
CHAOS := PYTHONPATH=workflow/scripts:kernels:reports/chapters:.:tests/support .venv/bin/python experiments
.PHONY: chaos
chaos: .venv/dev.stamp
	$(CHAOS)/chaos.py --strikes $(or $(STRIKES),200) --minutes $(or $(MINUTES),25) --seed $(SEED) \
		$(if $(REPLAY),--replay $(REPLAY))

# Trials of honest kernels beside BUSY processes a core: none must be blamed.
.PHONY: honest-trials
honest-trials: .venv/dev.stamp
	$(CHAOS)/honest_trials.py --trials $(or $(TRIALS),2000) --busy $(or $(BUSY),6)

# Changes lines of the library, one at a time: does a test see it? 100 take some 20 minutes of a core.
.PHONY: mutants
mutants: .venv/dev.stamp
	.venv/bin/python experiments/mutants.py --count $(or $(COUNT),100) --seed $(SEED) \
		$(if $(AGAIN),--again $(AGAIN)) $(if $(OUT),--out $(OUT))

# Installs a Slurm where there is none (Debian's packages, as root), starts one of virtual nodes, runs
# a sweep on it and lets jobs, nodes and the controller fail.
test-cluster: .venv/dev.stamp
	sh tests/cluster/install.sh
	.venv/bin/python -m pytest -q tests/cluster

# The explorer in a browser. Installs Chromium where there is none (Debian's package, as root).
.PHONY: test-browser
test-browser: .venv/dev.stamp
	sh tests/browser/install.sh
	.venv/bin/python -m pytest -q tests/browser

.PHONY: style types
lint: style types

style: .venv/dev.stamp
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	PYTHONPATH=workflow/scripts:kernels:reports/chapters .venv/bin/lint-imports --no-cache --no-logo

EXTRA_RULES := $(wildcard workflow/scripts/gpushmoo/extras/*/rules.smk)
types: .venv/dev.stamp
	.venv/bin/mypy
	.venv/bin/snakefmt --check Snakefile workflow/Snakefile workflow/rules $(EXTRA_RULES)
	$(SNAKEMAKE) --lint

.venv/run.stamp: requirements/run.lock requirements/bootstrap.sh
	sh requirements/bootstrap.sh run

.venv/dev.stamp: requirements/dev.lock requirements/bootstrap.sh
	sh requirements/bootstrap.sh dev

# Adds CuPy for an NVIDIA GPU, by the driver's CUDA version; Triton; what submits jobs to a cluster;
# what stores results in S3.
.PHONY: cuda12 cuda13 intel triton slurm s3
cuda12 cuda13 intel triton slurm s3: .venv/run.stamp
	sh requirements/bootstrap.sh $@

# Makes the lock files anew from pyproject.toml: versions and hashes only, no addresses.
.PHONY: lock
lock: .venv/dev.stamp
	sh requirements/lock.sh

# Wheel and sdist in dist/, the wheel tried in an environment of its own.
.PHONY: dist
dist:
	sh requirements/dist.sh

clean:
	rm -rf results .snakemake dist docs/_build
