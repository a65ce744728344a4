"""Sinks: one package or module for each kind of sink, and the spool for sinks that cannot hold data invisibly."""
