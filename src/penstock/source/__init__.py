"""From the settings of sources to streaming DataFrames."""
