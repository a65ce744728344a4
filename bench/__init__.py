"""What Penstock costs against peers in the same run, content verified. `make bench` writes docs/benchmarks.md.

A part is a module with `measure(bench)`, which yields tables of figures, and one line in `bench.parts`. It delivers what
`bench.inputs.stream` or `counted` gives it, takes turns by `Bench.in_rounds`, and compares content by `require_content`.
"""
