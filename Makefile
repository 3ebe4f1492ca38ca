# Two commands to know: `make demo` and `make test`. Everything else is one of their parts.
.PHONY: demo setup up down test check bench

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
