"""
The command line: one file a command.

A command's module has NAME, HELP, EXAMPLES (the text under --help), add_arguments(parser) and run(args) -> exit code.
Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 nothing to do, 4 refused. With --json the result is one object
on the last line of standard output; logs go to standard error.
"""
