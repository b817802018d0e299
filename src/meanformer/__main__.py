"""Makes `python -m meanformer` the same as `meanformer`."""

from meanformer.cli import main

if __name__ == "__main__":
    main()
