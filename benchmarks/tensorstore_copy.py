"""What a short script on tensorstore does with an N5 array: read it, and write it as sharded Zarr v3, one level.

python benchmarks/tensorstore_copy.py INPUT OUTPUT
"""

import sys

import tensorstore as ts

source = ts.open({"driver": "n5", "kvstore": {"driver": "file", "path": sys.argv[1]}}).result()
block = list(source.chunk_layout.read_chunk.shape)
blosc = {"cname": "zstd", "clevel": 1, "shuffle": "bitshuffle", "typesize": 2, "blocksize": 0}
inner = [
    {"name": "bytes", "configuration": {"endian": "little"}},
    {"name": "blosc", "configuration": blosc},
]
sharding = {"chunk_shape": block, "codecs": inner}
target = ts.open(
    {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": sys.argv[2]},
        "context": {"data_copy_concurrency": {"limit": 2}},
        "metadata": {
            "shape": list(source.shape),
            "data_type": "uint16",
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": [b * 2 for b in block[:2]] + block[2:]},
            },
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        },
        "create": True,
    }
).result()
step = block[2]
for z in range(0, source.shape[2], step):
    target[:, :, z : z + step] = source[:, :, z : z + step].read().result()
