"""Accounts that survive the death of the machine they are on: your own state machine on three nodes.

python raft_ledger.py serve 1 SOCKET PEERS LOG    and 2, and 3; once for each: corelane raft init --log LOG --size 64M
python raft_ledger.py ask PEERS deposit ann 5     from anywhere; PEERS: 1=IP:PORT,2=..., as in [apps.ledger-1] ..
"""

import json
import sys

from corelane.apps.raft.node.machine import CommandRefused
from corelane.apps.raft.service.client import Client
from corelane.apps.raft.service.service import serve
from corelane.apps.raft.service.settings import LogSettings
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError


class Ledger:  # every node applies the same commands in the same order, and must come to the same
    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}

    def apply(self, command: bytes) -> bytes:
        words = command.decode(errors="replace").split()
        if len(words) != 3 or words[0] not in ("deposit", "withdraw") or not words[2].isdecimal() or len(words[2]) > 15:
            raise CommandRefused(b"say: deposit NAME AMOUNT, or withdraw NAME AMOUNT")
        balance = self.accounts.get(words[1], 0) + int(words[2]) * (1 if words[0] == "deposit" else -1)
        if balance < 0:
            raise CommandRefused(b"too little there")
        self.accounts[words[1]] = balance
        return str(balance).encode()

    def query(self, query: bytes) -> bytes:
        return str(self.accounts.get(query.decode(), 0)).encode()

    def save(self) -> bytes:
        return json.dumps(self.accounts).encode()

    def load(self, state: bytes) -> None:
        self.accounts = json.loads(state)


def main() -> None:
    if sys.argv[1] == "serve":
        with Runtime(sys.argv[3], name=f"ledger-{sys.argv[2]}") as runtime:
            service = serve(runtime, int(sys.argv[2]), sys.argv[4], machine=Ledger(), log=LogSettings(file=sys.argv[5]))
            runtime.start()
            print("ready", flush=True)
            runtime.wait()  # raises what stopped the node, as a disk that failed
        service.close()
        runtime.wait(0)  # and a stop that came too late for that
        return
    with Client(sys.argv[2]) as client:
        ask, words = (client.query, sys.argv[4:]) if sys.argv[3] == "balance" else (client.command, sys.argv[3:])
        print(ask(" ".join(words).encode()).decode())


try:
    main()
except CorelaneError as error:
    sys.exit(str(error))
