"""Where rows go: one folder or file per kind of sink, and the spool for those that cannot hold data invisibly."""
