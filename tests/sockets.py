"""What the kernel says of a rank's connections."""

from __future__ import annotations

import os
import socket
import struct

from paceline.distributed.abort import GroupAborter

#: Of struct tcp_info: tcpi_bytes_sent and, behind it, tcpi_bytes_retrans (Linux 4.19).
SENT_OFFSET, SIZE = 200, 216


def bytes_sent(aborter: GroupAborter) -> int:
    """Through the sockets of the group that `aborter` is around, each byte once."""
    assert aborter._own is not None, "the group does not stand yet"
    return sum(map(_sent, (each.descriptor for each in aborter._own)))


def _sent(descriptor: int) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        sent, again = struct.unpack_from("QQ", copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE), SENT_OFFSET)
    return int(sent - again)
