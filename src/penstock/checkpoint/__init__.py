"""Spark's checkpoint as plain files: read and explained without Spark and without Java."""
