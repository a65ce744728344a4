"""Delivery into a Delta table: files that tasks stage, published by one commit of the table's log together with the marker."""
