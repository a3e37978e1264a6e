"""Benchmarks one can run: `python -m tests.bench NAME`. Never a gate of the tests."""
