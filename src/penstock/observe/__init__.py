"""History, status and progress of a pipeline as frozen values; the command line renders them."""
