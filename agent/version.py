"""The agent's version, said here once more: reading it from the installed package costs as much memory as the TLS library."""

VERSION = "0.1.0"
