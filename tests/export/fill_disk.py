"""Let the disk fill at random points of exports and go on with them: by hand, as root on Linux.

`python -m tests.export.fill_disk [COUNT] [SEED]` mounts a tmpfs of its own. Each round exports to it with so little
room that it runs out at a random point of what is written, and looks at what is left: exit code 5, the final name shows
nothing or the old store. Then it gets room, and the same command with `--resume` must give the bytes of an export
that nobody disturbed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.export import kill_many as killing

BLOCK = 4096
ROOMY = 256 << 20


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._mount(ROOMY)

    def _mount(self, size: int, *options: str) -> None:
        how = ",".join([f"size={size}", "nr_inodes=20000", *options])
        subprocess.run(["mount", "-t", "tmpfs", "-o", how, "tmpfs", self.folder], check=True)

    def used(self) -> int:
        found = os.statvfs(self.folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def room(self, more: int) -> None:
        """Let so many bytes be free from now on."""
        blocks = -(-(self.used() + more) // BLOCK)
        self._mount(blocks * BLOCK, "remount")

    def clear(self) -> None:
        self._mount(ROOMY, "remount")
        for left in self.folder.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def close(self) -> None:
        subprocess.run(["umount", self.folder], check=True)


def run(source: Path, target: Path, *options: str) -> tuple[int, str]:
    """Exit code, and the code of the error."""
    done = subprocess.run(
        [*killing.command(source, target, *options), "--json"], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    document = json.loads(done.stdout)
    return done.returncode, "" if document["ok"] else document["error"]["code"]


def fill(number: int, way: str, source: Path, disk: Disk, chance: random.Random) -> str:
    """One full disk and what follows; tells how it went."""
    target = disk.folder / ("out.ozx" if "archive" in way else "out.ome.zarr")
    killing.finish(source, target)
    wanted, whole = killing.tree(target), disk.used()
    disk.clear()
    options, old = [], None
    if "overwrite" in way:
        killing.finish(source, target, "--image", "0", "--select", "c=0", "--pyramid", "none")
        options, old = ["--overwrite"], killing.tree(target)
    share = chance.uniform(0.0, 0.97)
    disk.room(int(whole * share))
    found = run(source, target, *options)
    assert found == (5, "io"), (way, share, found)
    assert (killing.tree(target) if target.exists() else None) == old, f"{way}: not as it was"
    left = sorted(p.name for p in disk.folder.iterdir())
    kept = any(name.endswith(".partial") for name in left)
    assert kept or left == [target.name] * (old is not None), left
    if number % 2:  # once more without room
        assert run(source, target, *options, "--resume") == (5, "io")
    disk.room(ROOMY)
    assert run(source, target, *options, "--resume") == (0, "")
    assert killing.tree(target) == wanted, f"{way}: other bytes after --resume"
    assert [p.name for p in disk.folder.iterdir()] == [target.name], "left behind"
    disk.clear()
    return f"{number} {way} full after {share:.0%}, {'kept' if kept else 'cleared'}"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    with tempfile.TemporaryDirectory() as folder:
        source = killing.make_source(Path(folder) / "source.ome.zarr")
        before = killing.tree(source)
        disk = Disk(Path(folder) / "disk")
        try:
            for number in range(count):
                way = killing.WAYS[number % len(killing.WAYS)]
                sys.stdout.write(fill(number, way, source, disk, chance) + "\n")
                sys.stdout.flush()
        finally:
            disk.close()
        assert killing.tree(source) == before, "the source was changed"
        sys.stdout.write(f"{count} full disks: all ended with code 5 and were gone on with\n")


if __name__ == "__main__":
    main()
