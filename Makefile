# Two commands to know: `make demo` and `make test`. Everything else is one of their parts.
.PHONY: demo setup up down test check bench chaos

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

check:
	@exec scripts/check

# make bench [JSON=FILE]
bench: setup
	@exec .venv/bin/python -m scripts.bench $(if $(JSON),--json $(JSON))

# make chaos [SEED=N]: sixty faults in half an hour, then the same job left alone; then ten minutes without a coordinator
chaos: setup
	.venv/bin/python -m scripts.chaos $(if $(SEED),--seed $(SEED))
	.venv/bin/python -m scripts.faults.outage
