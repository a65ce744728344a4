"""The command `penstock`: one file per verb group; text and JSON come from one value."""
