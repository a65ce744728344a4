"""What people see of a pipeline: history, status and progress as frozen values; rendering belongs to the command line."""
