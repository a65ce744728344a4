"""What Penstock costs against peers in the same run, content verified. `make bench` writes docs/benchmarks.md."""
