"""Folders of files, by path or by URI: s3://, gs://, az://, as the lake takes.

Credentials and addresses come from the environment, in the variables that the lake needs as well: AWS_*,
GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY.
"""

import os
from pathlib import Path

from pyarrow import fs

from icestream.files import atomic_file


def open_folder(uri: str) -> fs.FileSystem:
    """Returns a file system whose root is the folder, which may be missing. Raises OSError or ValueError."""
    if "://" not in uri:
        return fs.SubTreeFileSystem(str(Path(uri).absolute()), fs.LocalFileSystem())
    scheme, path = uri.rstrip("/").split("://", 1)
    if scheme == "az":
        environ = os.environ
        system = fs.AzureFileSystem(
            account_name=environ.get("AZURE_STORAGE_ACCOUNT_NAME", ""),
            account_key=environ.get("AZURE_STORAGE_ACCOUNT_KEY"),
        )
    else:
        system, path = fs.FileSystem.from_uri(uri)
    return fs.SubTreeFileSystem(path, system)


def write_file(uri: str, path: str, data: bytes) -> None:
    """Writes a file of the folder, complete or not at all. Raises OSError or ValueError."""
    if "://" in uri:
        with open_folder(uri).open_output_stream(path) as stream:  # what is not closed is not there
            stream.write(data)
        return
    local = Path(uri, path)
    local.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file.replacing(local, durable=True) as file:
        file.write(data)


def names(folder: fs.FileSystem, path: str = "") -> list[str]:
    """Returns the ascending names of what lies directly in a folder; none if it is missing. Raises OSError."""
    return sorted(info.base_name for info in folder.get_file_info(fs.FileSelector(path, allow_not_found=True)))
