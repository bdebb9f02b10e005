"""Runs a program that knows nothing of corelane on a loop of choice: python launch.py stock|ours|ours:INTERFACE PROGRAM
[ARGUMENT...].

ours: the program's loops are on a tap in this network namespace, of which Linux has 10.99.8.1, and the loops 10.99.8.2;
or by AF_XDP on an interface, with that address.
At the end it says how many TCP endpoints of its loops were the runtime's, and how many Linux'.
"""

import runpy
import sys
from contextlib import suppress

LINUX, OURS = "10.99.8.1", "10.99.8.2"


def made_nic(interface):
    if interface:
        from corelane.drivers.nic.af_xdp.af_xdp import AfXdp

        return AfXdp(interface, addresses=[f"{OURS}/24"])
    from corelane.drivers.nic.tap.tap import Tap

    return Tap("clasy", address=f"{LINUX}/24")


def on_nic(interface):
    """From now on the loops that asyncio makes are on a NIC; their counts."""
    import asyncio

    from corelane.libos import asyncio as libos_asyncio

    counts = []

    class Policy(libos_asyncio.EventLoopPolicy):
        def new_event_loop(self):
            loop = super().new_event_loop()
            counts.append(loop.endpoints())
            return loop

    asyncio.set_event_loop_policy(Policy(nic=made_nic(interface), address=f"{OURS}/24"))
    return counts


def main():
    loop, program, *sys.argv[1:] = sys.argv[1:]
    loop, _, interface = loop.partition(":")
    counts = on_nic(interface) if loop == "ours" else []
    with suppress(KeyboardInterrupt):
        runpy.run_path(program, run_name="__main__")
    print(f"endpoints {sum(c.ours for c in counts)} {sum(c.linux for c in counts)}", flush=True)


if __name__ == "__main__":
    main()
