"""Accounts that survive the death of the machine they are on: your own state machine on three nodes.

python raft_ledger.py serve 1 SOCKET PEERS LOG    and 2, and 3, on the same or other machines; each LOG is made once:
                                                  corelane raft init --log LOG --size 64M
python raft_ledger.py ask PEERS deposit ann 5     from anywhere; PEERS is 1=ADDRESS:PORT,2=...,3=...
"""

import json
import sys

from corelane.apps.raft.client import Client
from corelane.apps.raft.service import serve
from corelane.libos import Runtime


class Ledger:
    """Must be deterministic: every node applies the same commands in the same order."""

    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}

    def apply(self, command: bytes) -> bytes:
        what, name, amount = command.decode().split()
        change = int(amount) if what == "deposit" else -int(amount)
        if self.accounts.get(name, 0) + change < 0:
            return b"refused: too little there"
        self.accounts[name] = self.accounts.get(name, 0) + change
        return str(self.accounts[name]).encode()

    def query(self, query: bytes) -> bytes:
        return str(self.accounts.get(query.decode(), 0)).encode()

    def save(self) -> bytes:
        return json.dumps(self.accounts).encode()

    def load(self, state: bytes) -> None:
        self.accounts = json.loads(state)


def main() -> None:
    if sys.argv[1] == "serve":
        number, socket, peers, log = int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
        with Runtime(socket, name=f"ledger-{number}") as runtime:
            service = serve(runtime, number, peers, machine=Ledger(), log=log)
            runtime.start()
            print("ready", flush=True)
            runtime.wait()
            runtime.stop()
            service.close()
        return
    with Client(sys.argv[2]) as client:
        words = " ".join(sys.argv[3:]).encode()
        print((client.query(words.split()[1]) if words.startswith(b"balance") else client.command(words)).decode())


if __name__ == "__main__":
    main()
