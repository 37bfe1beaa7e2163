#!/usr/bin/env python3
"""Does what a Collector decodes say the same as what the program counted that sent it?

    receive.py COLLECTOR_BINARY FOLDER PEER PROTOCOL SENDER...

Runs SENDER as peer.py does, with the PEER collector or rotel, and compares its ledger (ledger.py
tells what that is) with what the Collector wrote. Exit 1, with the differences, unless both are
the same.
"""

import subprocess
import sys

import ledger
import peer

# What rotel loses of a program's records, by protocol, and nothing of the others.
ROTEL_LOSES = {
    "grpc": lambda record: False,
    "http/protobuf": lambda record: False,
    # OTLP-JSON writes 64-bit integers, NaN and infinities as strings. Of these rotel reads the
    # integers in attributes, and the times. A point with any other it takes, with an answer of
    # 200, and passes on without what it could not read, so that a histogram never comes.
    # (A span or a log with a NaN or infinite attribute it refuses, with all of its request, so
    # that no exception here could help: the sender must have none.)
    "http/json": lambda record: "point" in record and not isinstance(record["point"].get("asDouble"), float),
}


def main():
    binary, folder, name, protocol, command = peer.arguments(__doc__, ("collector", "rotel"))
    peer.unwind_when_ended()
    with peer.peer(name, binary, folder) as ports:
        environment = peer.environment(protocol, ports)
        sender = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, timeout=peer.COMMAND_SECONDS
        )
    if sender.returncode != 0:
        sys.exit(f"{command[0]} ended with {sender.returncode}")
    over, lost = protocol, lambda record: False
    if name == "rotel":
        over, lost = f"{protocol} through rotel", ROTEL_LOSES[protocol]
    sys.exit(0 if ledger.check(sender.stdout, folder, over, lost) else 1)


if __name__ == "__main__":
    main()
