"""The `jpeg` codec: chunks as baseline JPEG images, for our chain and for zarr-python; and N5's `jpeg`."""
