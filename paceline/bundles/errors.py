"""What can go wrong with a bundle.

BundleError
├── NothingToPackError      the folder is missing, or every file in it is left out
├── BundleTooLargeError     more files or bytes than a bundle may have; it names the largest
├── UnpackableFileError     a file that cannot be in a bundle: a link to the outside, a name that is no text or too long
└── DamagedBundleError      an archive that is not what its digest says, or not one of ours
    └── PathTooLongError    a path in it that no node can hold
"""

from __future__ import annotations


class BundleError(Exception):
    """The message names the file, the limit and the way out."""


class NothingToPackError(BundleError):
    pass


class BundleTooLargeError(BundleError):
    pass


class UnpackableFileError(BundleError):
    pass


class DamagedBundleError(BundleError):
    pass


class PathTooLongError(DamagedBundleError):
    pass
