"""The command `penstock`: one file per verb group; text and JSON are printed from one value."""
