"""The exit codes of every command."""

DONE = 0
FAILED = 1
USAGE = 2  # usage or configuration
NOTHING = 3  # nothing to do, nothing to show
REFUSED = 4
INTERRUPTED = 130
PIPE_CLOSED = 141
