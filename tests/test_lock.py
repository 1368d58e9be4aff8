import json
import os
import socket
import subprocess
import sys
import time

import pytest

from manylabel import lock as lock_module
from manylabel.lock import WriterLock


def other_lock(path, *, machine, process=1, started="", age=0.0):
    holder = {"process": process, "machine": machine, "started": started, "token": "theirs"}
    path.write_text(json.dumps(holder))
    os.utime(path, (time.time() - age, time.time() - age))


def test_a_lock_of_another_machine_holds_until_it_shows_no_life(tmp_path):
    other_lock(tmp_path / "lock", machine="elsewhere", age=lock_module.STALE_AFTER - 60)
    assert str(WriterLock(tmp_path / "lock").acquire()) == "process 1 on elsewhere"
    other_lock(tmp_path / "lock", machine="elsewhere", age=lock_module.STALE_AFTER + 60)
    assert WriterLock(tmp_path / "lock").acquire() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process was started")
def test_a_lock_is_stale_if_its_process_is_gone_or_another_has_its_number(tmp_path):
    path, me = tmp_path / "lock", socket.gethostname()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = lock_module._start_of(process.pid)
    other_lock(path, machine=me, process=process.pid, started=started)
    assert WriterLock(path).holder().process == process.pid
    other_lock(path, machine=me, process=process.pid, started="12")
    assert WriterLock(path).holder() is None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but nobody took note yet
    other_lock(path, machine=me, process=process.pid, started=started)
    assert WriterLock(path).holder() is None
    process.communicate()
    assert WriterLock(path).acquire() is None


def test_a_half_made_lock_holds_for_a_moment_only(tmp_path):
    (tmp_path / "lock").touch()
    assert WriterLock(tmp_path / "lock").acquire() is not None
    os.utime(tmp_path / "lock", (time.time() - 120, time.time() - 120))
    assert WriterLock(tmp_path / "lock").acquire() is None
