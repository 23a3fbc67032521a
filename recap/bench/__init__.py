"""The benchmark: several methods on the same prompts, by their own clocks, answers compared.

    python -m recap bench --prompts demo --methods recap@63,token-recycling@80 --limit 12

A *sample* is one run of one method on one prompt. `spec` says which methods with which settings,
`sets` which prompts, `contenders` how a sample is taken, `runner` in which order, `journal` keeps
what is done over a crash, `statistics` sums up, `report` and `plot` show it. `command` is the way
in from the command line.
"""
