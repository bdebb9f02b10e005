"""raft: a replicated log and state machine (see apps/raft/sim for the simulated world that tests it)."""
