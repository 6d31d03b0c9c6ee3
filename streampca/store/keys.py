"""The key of a run, in a file of its own, and the records sealed with it.

The key file is as secret as the rows. Every part of a store that depends on raw rows is sealed with a key derived from
it (AES-256-GCM, a fresh random nonce each time). The database without the key shows configuration, progress and
releases only, and every changed bit of a sealed record is detected.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from streampca.errors import WrongKeyError
from streampca.store.records import damaged
from streampca.store.witness import beside, sync_folder, write_new

_NONCE = 12


@dataclass(frozen=True)
class RunKey:
    """The key of one run, and the cipher of its records. As secret as the rows."""

    run: str  #: lineage id of the run it belongs to
    key: bytes = field(repr=False)  #: 32 bytes
    seeded: bool = field(repr=False)  #: True if the key comes from a seed

    def derive(self, purpose: bytes) -> bytes:
        """Return an independent key for another purpose."""
        return blake2b(self.run.encode(), key=self.key, digest_size=32, person=purpose).digest()

    def check(self) -> str:
        """Return a public value that identifies this key."""
        # Two hashes with different purposes: this value reveals nothing of the keys that `derive` returns elsewhere.
        return blake2b(self.derive(b"streampca check"), digest_size=16).hexdigest()

    def point(self, t: int, link: bytes) -> str:
        """Return a keyed digest of the number of rows and the chain value after them."""
        name = b"%d|%b" % (t, link)
        return blake2b(name, key=self.derive(b"streampca point"), digest_size=16).hexdigest()

    def seal(self, kind: str, number: int, data: bytes) -> bytes:
        """Seal a record. Run, kind and number are authenticated, so that it cannot replace another record."""
        nonce = secrets.token_bytes(_NONCE)
        # Random nonces of 96 bits are safe for 2**32 records of one key (NIST SP 800-38D), far more than a run writes.
        return nonce + self._cipher.encrypt(nonce, data, f"{self.run}|{kind}|{number}".encode())

    def open(self, kind: str, number: int, sealed: bytes) -> bytes:
        """Open a record. Raises `StoreCorruptError` if it has changed, or it is another record."""
        # Columns of SQLite have no fixed type: a damaged value may be a number, and slicing it a TypeError.
        try:
            label = f"{self.run}|{kind}|{number}".encode()
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], label)
        except (InvalidTag, ValueError, TypeError):
            raise damaged(f"the {kind} of row {number} fails its checksum: the file is damaged") from None

    @cached_property
    def _cipher(self) -> AESGCM:
        return AESGCM(self.derive(b"streampca seal"))


class _KeyFile(msgspec.Struct, forbid_unknown_fields=True):
    """The key file, JSON: the key, or the key sealed under a passphrase, in base64."""

    format: Literal["streampca key 2"]
    run: str
    seeded: bool
    key: Annotated[bytes, msgspec.Meta(min_length=32, max_length=60)]
    salt: bytes | None = None  #: of the passphrase; None if the key is not sealed


def write_key(path: Path, key: RunKey, passphrase: str | None) -> None:
    """Write a key file, mode 0600, and flush it to the disk. It is there as a whole, or not at all."""
    file = _KeyFile("streampca key 2", key.run, key.seeded, key.key)
    if passphrase is not None:
        file.salt, nonce = secrets.token_bytes(16), secrets.token_bytes(_NONCE)
        # The run is authenticated, so that the key cannot be passed off as that of another run.
        file.key = nonce + _passphrase_cipher(passphrase, file.salt).encrypt(nonce, key.key, key.run.encode())
    # Written under another name and renamed, so that a crash leaves no half of a key.
    part = beside(path, ".part")
    part.unlink(missing_ok=True)
    write_new(part, msgspec.json.encode(file))
    os.replace(part, path)
    sync_folder(path)


def run_of(path: Path) -> str | None:
    """Return the run of a key file; None if the file is missing or unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_KeyFile).run
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def read_key(path: Path, passphrase: str | None) -> RunKey:
    """Read a key file. Raises `WrongKeyError` if it is missing, unsafe, damaged, or the passphrase is wrong."""
    try:
        mode, data = os.stat(path).st_mode, path.read_bytes()
        file = msgspec.json.decode(data, type=_KeyFile)
    except FileNotFoundError:
        raise WrongKeyError(f"{path} is missing. Put the key file of this run back") from None
    except OSError as problem:
        raise WrongKeyError(f"{path} cannot be read ({problem})") from None
    except (ValueError, msgspec.MsgspecError):
        raise WrongKeyError(f"{path} is damaged or not a key file. Put the key file of this run back") from None
    # The key decrypts the exact Gram matrix and all rows of the log.
    if mode & 0o077:
        raise WrongKeyError(f"{path} can be read by others than its owner. Apply chmod 600 and treat the key as known")
    if file.salt is None:
        return RunKey(file.run, file.key, file.seeded)
    if passphrase is None:
        raise WrongKeyError(f"{path} is protected. Pass passphrase=")
    try:
        cipher = _passphrase_cipher(passphrase, file.salt)
        key = cipher.decrypt(file.key[:_NONCE], file.key[_NONCE:], file.run.encode())
    except (InvalidTag, ValueError):
        raise WrongKeyError(f"the passphrase does not open {path}") from None
    return RunKey(file.run, key, file.seeded)


def _passphrase_cipher(passphrase: str, salt: bytes) -> AESGCM:
    # One guess of a passphrase costs 128 MiB of memory and about 0.3 s.
    return AESGCM(Scrypt(salt=salt, length=32, n=2**17, r=8, p=1).derive(passphrase.encode()))
