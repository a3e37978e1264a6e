"""
`reaper demo`: the newcomer's first minute.

A local EC2 API, a fleet of machines with scripted lives, a real agent loop for each, the real door and the real daemon
in enforce mode. Read `story` for who plays, `play` for how it is put together and when it ends.
"""
