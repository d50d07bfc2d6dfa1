"""Whose a file or folder is, what it is if no file, and whether others may write there."""

from __future__ import annotations

import os
import stat


def whose(found: os.stat_result) -> str:
    """Owner and mode, against who we are."""
    return f"owner uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}, and we are uid {os.geteuid()}"


def kind(mode: int) -> str:
    """What is there in place of a file."""
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe (FIFO)"
    if stat.S_ISLNK(mode):
        return "a link"
    return "a device or a socket"


def may_others_write(folder: os.stat_result) -> bool:
    """Whether other users may put files there, or take ours away.

    A group of our own is no other user: many systems give each user one, and a umask of 002.
    """
    may_group = folder.st_mode & stat.S_IWGRP and folder.st_gid not in {0, os.getegid()}
    return bool(folder.st_mode & stat.S_IWOTH or may_group)
