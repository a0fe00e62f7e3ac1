# make report: set up and run the default configuration. make test: set up and run all checks.
SNAKEMAKE := .venv/bin/snakemake
LIBRARY := workflow/scripts/gpushmoo

.PHONY: report test lint clean

report: .venv/run.stamp
	$(SNAKEMAKE) --cores all

test: lint
	.venv/bin/python -m pytest -q

lint: .venv/dev.stamp
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/snakefmt --check --quiet Snakefile workflow/rules
	.venv/bin/mypy
	$(SNAKEMAKE) --lint

.venv/run.stamp: requirements/run.lock requirements/bootstrap.sh
	sh requirements/bootstrap.sh run

.venv/dev.stamp: requirements/dev.lock requirements/bootstrap.sh
	sh requirements/bootstrap.sh dev

# Makes the lock files anew from pyproject.toml: versions and hashes only, no addresses.
.PHONY: lock
lock: .venv/dev.stamp
	sh requirements/lock.sh

clean:
	rm -rf results .snakemake
