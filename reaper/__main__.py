"""`python -m reaper` is the command `reaper`."""

import sys

from reaper.cli.main import main

sys.exit(main())
