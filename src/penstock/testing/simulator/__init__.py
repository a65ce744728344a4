"""The protocol in one thread: the real coordinator, log ledger and codec over stores and sinks in memory.

Every operation of a store is a step at which a driver may die, fail, stall or be overtaken by another driver. A **schedule** says
what happens at which step; the same schedule gives the same trace. Drivers are greenlets, so the product's plain synchronous code
is suspended and resumed wherever it touches a store. Invariants I1-I4 and I6-I12 are checked at every step or at the end, on
multisets of rows.

`python -m penstock.testing.simulator --seed 7 --schedule 12:lost,40:stall:9` replays one schedule and prints its trace.
"""
