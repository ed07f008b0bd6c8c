"""The only package that imports fairseq: shims, binarising, the models as it trains them, driving its trainer."""
