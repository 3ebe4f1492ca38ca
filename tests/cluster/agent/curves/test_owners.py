from __future__ import annotations

from paceline.cluster.agent.curves.owners import writer_of


def test_a_file_name_tells_its_writer() -> None:
    ours = writer_of("events.out.tfevents.1795479225.my.host.22203.1", "my.host")
    assert ours is not None
    assert (ours.time, ours.pid, ours.number, ours.here) == (1795479225.0, 22203, 1, True)
    assert (suffixed := writer_of("events.out.tfevents.1795479225.host.7.0.v2", "host")) is not None
    assert suffixed.pid == 7
    assert (tensorboardx := writer_of("events.out.tfevents.1795479225.host", "host")) is not None
    assert (tensorboardx.pid, tensorboardx.here) == (None, True)
    assert (other := writer_of("events.out.tfevents.1795479225.host2.7.0", "host")) is not None
    assert not other.here
    assert writer_of("events.out.tfevents.x", "host") is None
