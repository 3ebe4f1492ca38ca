# Two commands to know: `make demo` and `make test`. Everything else is one of their parts.
.PHONY: demo setup up down test test-all check generate bench chaos soak

# Thousands of processes of this checkout start in a test run, hundreds of modules in each: Python keeps them compiled, also where it was told not to.
export PYTHONDONTWRITEBYTECODE =

demo:
	@exec scripts/demo

setup:
	@exec scripts/setup

up: setup
	@exec .venv/bin/paceline up

down:
	@exec .venv/bin/paceline down

test:
	@exec scripts/test

# What a release must pass: all tests, then half an hour under load and faults
test-all:
	@scripts/test --all
	.venv/bin/python -m scripts.soak --minutes 30

check:
	@exec scripts/check

# What is made from the API: its document, the types that the dashboard and the command line have from that, and the constants of the dashboard
generate:
	.venv/bin/python -m paceline.api.openapi > dashboard/openapi.json
	npm --prefix dashboard run --silent generate
	.venv/bin/python -m paceline.api.constants > dashboard/src/lib/constants.generated.ts
	.venv/bin/python -m scripts.generate_cli_types

# make bench [JSON=FILE]. It draws charts in a browser, as the tests do, and needs what they need
bench:
	@scripts/setup --dev
	@exec .venv/bin/python -m scripts.bench $(if $(JSON),--json $(JSON))

# make chaos [SEED=N]: sixty faults in half an hour, then the same job left alone; then ten minutes without a coordinator
chaos: setup
	.venv/bin/python -m scripts.chaos $(if $(SEED),--seed $(SEED))
	.venv/bin/python -m scripts.faults.outage

# make soak [HOURS=8]: hours of mixed load and faults; nothing may grow that should not
soak: setup
	.venv/bin/python -m scripts.soak $(if $(HOURS),--hours $(HOURS))
