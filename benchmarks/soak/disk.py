"""File systems of a given size for members' folders, which can be filled. They need root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

MEGABYTES = 256


class Disk:
    """A tmpfs at a new folder. A context manager: afterwards the folder holds the same files on the underlying disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / ".filler"

    def __enter__(self) -> Disk:
        self.folder.mkdir(parents=True)
        size = f"size={MEGABYTES}m,mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "soak", str(self.folder)], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.free()
        kept = self.folder.with_name(f"{self.folder.name}.kept")
        shutil.copytree(self.folder, kept)
        subprocess.run(["umount", "-l", str(self.folder)], check=True)
        self.folder.rmdir()
        kept.rename(self.folder)

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


def available() -> str:
    """Reason that none can be mounted here, or ""."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    probe = Path(f"/tmp/soak-probe-{os.getpid()}")
    probe.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "soak", str(probe)], capture_output=True, text=True, check=False
    )
    if made.returncode == 0:
        subprocess.run(["umount", str(probe)], check=True)
    probe.rmdir()
    return made.stderr.strip()
