"""Runs a module as `python -m` does, unless another product than the one in the given package is first on the path."""

import runpy
import sys

import penstock

if __name__ == "__main__":
    package, module, *arguments = sys.argv[1:]
    if not penstock.__file__.startswith(package):
        sys.exit(f"{penstock.__file__} was imported, not the package in {package}")
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
