"""The `n5_default` codec: N5 blocks in default mode, for our chain and for zarr-python."""
