"""A simulator that tries to make the reaper kill work: true lives, an untrustworthy world, and judges who know the truth."""
