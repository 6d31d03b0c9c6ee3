"""The key of a run, in a file of its own, and the records sealed with it.

The key file is as secret as the rows. Every part of a store that depends on raw rows is sealed with a key derived from
it (AES-256-GCM, a fresh random nonce each time). The database without the key shows configuration, progress and
releases only, and every changed bit of a sealed record is detected.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from streampca.errors import StoreCorruptError, WrongKeyError
from streampca.store.witness import beside, sync_folder, write_new

_FORMAT = "streampca key 1"
_NONCE = 12
#: Cost of one guess of a passphrase: 128 MiB of memory, about 0.3 s.
_SCRYPT = {"n": 2**17, "r": 8, "p": 1}


@dataclass(frozen=True, repr=False)
class RunKey:
    """The key of one run. As secret as the rows."""

    run: str  #: lineage id of the run it belongs to
    key: bytes  #: 32 bytes
    seeded: bool  #: True if the key comes from a seed

    def derive(self, purpose: bytes) -> bytes:
        """Return an independent key for another purpose."""
        return blake2b(self.run.encode(), key=self.key, digest_size=32, person=purpose).digest()

    def check(self) -> str:
        """Return a public value that identifies this key."""
        return blake2b(self.derive(b"streampca check"), digest_size=16).hexdigest()

    def point(self, t: int, link: bytes) -> str:
        """Return a keyed digest of the number of rows and the chain value after them."""
        name = b"%d|%b" % (t, link)
        return blake2b(name, key=self.derive(b"streampca point"), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"RunKey(run={self.run!r})"


class Seal:
    """Cipher that seals and opens records under their kind and number."""

    def __init__(self, key: RunKey) -> None:
        self._cipher = AESGCM(key.derive(b"streampca seal"))
        self._run = key.run.encode()

    def seal(self, kind: str, number: int, data: bytes) -> bytes:
        """Seal a record. Run, kind and number are authenticated, so that it cannot replace another record."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, self._label(kind, number))

    def open(self, kind: str, number: int, sealed: bytes) -> bytes:
        """Open a record. Raises `StoreCorruptError` if it has changed, or it is another record."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], self._label(kind, number))
        except (InvalidTag, ValueError):
            raise StoreCorruptError(
                f"the {kind} of row {number} fails its checksum: the file is damaged. Restore the newest copy"
            ) from None

    def _label(self, kind: str, number: int) -> bytes:
        return b"%s|%s|%d" % (self._run, kind.encode(), number)


def prepare_key(path: Path, key: RunKey, passphrase: str | None) -> None:
    """Write a key file, mode 0600, and flush it to the disk, under its name before `publish_key`."""
    head: dict[str, object] = {"format": _FORMAT, "run": key.run, "seeded": key.seeded}
    if passphrase is None:
        head["key"] = key.key.hex()
    else:
        salt = secrets.token_bytes(16)
        nonce = secrets.token_bytes(_NONCE)
        sealed = nonce + AESGCM(_stretched(passphrase, salt, **_SCRYPT)).encrypt(nonce, key.key, key.run.encode())
        head |= {"salt": salt.hex(), "scrypt": _SCRYPT, "sealed": sealed.hex()}
    text = json.dumps(head)
    part = beside(path, ".part")
    part.unlink(missing_ok=True)
    write_new(part, (text + "\n" + _sum(text) + "\n").encode(), mode=0o600)


def publish_key(path: Path, run: str) -> None:
    """Rename the key file of a run to its final name. Idempotent."""
    part = beside(path, ".part")
    if run_of(part) == run:
        os.replace(part, path)
        sync_folder(path)


def _read_head(path: Path) -> dict[str, Any]:
    text, _, rest = path.read_text(encoding="ascii").partition("\n")
    if rest.strip() != _sum(text):
        raise ValueError("the checksum is wrong")
    head = json.loads(text)
    return head if isinstance(head, dict) else {}


def run_of(path: Path) -> str | None:
    """Return the run of a key file; None if the file is missing or unreadable."""
    try:
        return str(_read_head(path)["run"])
    except (OSError, ValueError, KeyError):
        return None


def read_key(path: Path, passphrase: str | None) -> RunKey:
    """Read a key file. Raises `WrongKeyError` if it is missing, unsafe, damaged, or the passphrase is wrong."""
    try:
        if os.stat(path).st_mode & 0o077:
            raise WrongKeyError(
                f"{path} can be read by others than its owner. Apply chmod 600 and treat the key as known"
            )
        head = _read_head(path)
        if head["format"] != _FORMAT:
            raise ValueError
        if "key" in head:
            return RunKey(head["run"], bytes.fromhex(head["key"]), bool(head["seeded"]))
        if passphrase is None:
            raise WrongKeyError(f"{path} is protected. Pass passphrase=")
        sealed, salt = bytes.fromhex(head["sealed"]), bytes.fromhex(head["salt"])
        stretched = _stretched(passphrase, salt, **{k: int(head["scrypt"][k]) for k in ("n", "r", "p")})
        key = AESGCM(stretched).decrypt(sealed[:_NONCE], sealed[_NONCE:], head["run"].encode())
        return RunKey(head["run"], key, bool(head["seeded"]))
    except WrongKeyError:
        raise
    except FileNotFoundError:
        raise WrongKeyError(f"{path} is missing. Put the key file of this run back, or pass key_file=") from None
    except OSError as problem:
        raise WrongKeyError(f"{path} cannot be read ({problem})") from None
    except InvalidTag:
        raise WrongKeyError(f"the passphrase does not open {path}") from None
    except (ValueError, KeyError, TypeError):
        raise WrongKeyError(f"{path} is damaged or not a key file. Put the key file of this run back") from None


def _stretched(passphrase: str, salt: bytes, *, n: int, r: int, p: int) -> bytes:
    if n > 2**20 or r > 32 or p > 16:  # a damaged file could demand any amount of memory
        raise ValueError("the cost is above that of every key file")
    return Scrypt(salt=salt, length=32, n=n, r=r, p=p).derive(passphrase.encode())


def _sum(text: str) -> str:
    return blake2b(text.encode(), digest_size=16, person=b"streampca keyfil").hexdigest()
