"""Typed, validated, frozen settings of the pipeline file. The same classes are the Python interface."""
