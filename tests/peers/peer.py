#!/usr/bin/env python3
"""Who is at the other end, when a program exports by OTLP?

    peer.py COLLECTOR_BINARY FOLDER PEER PROTOCOL COMMAND...

Runs COMMAND with OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_PROTOCOL set, and exits as it
does. PROTOCOL is grpc, http/protobuf or http/json. PEER is one of

    collector  an OpenTelemetry Collector, which writes what it decodes to
               FOLDER/{traces,metrics,logs}-received.jsonl
    rotel      rotel, another implementation, which decodes and encodes anew what it sends on to
               such a Collector; needs the Python that has the package
    nobody     a port on which nobody listens
    deaf       a listener that takes every connection and never answers
"""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HOST = "127.0.0.1"
PROTOCOLS = ("grpc", "http/protobuf", "http/json")
# To begin listening, or to write what is left and end. Both take less than a second on an idle machine.
SERVER_SECONDS = 60
# The example trainer takes about twenty on an idle machine.
COMMAND_SECONDS = 300

COLLECTOR = """\
receivers:
  otlp: {{ protocols: {{ grpc: {{ endpoint: "{host}:{grpc}" }}, http: {{ endpoint: "{host}:{http}" }} }} }}
exporters:
  file/traces: {{ path: traces-received.jsonl, format: json }}
  file/metrics: {{ path: metrics-received.jsonl, format: json }}
  file/logs: {{ path: logs-received.jsonl, format: json }}
service:
  pipelines:
    traces: {{ receivers: [otlp], exporters: [file/traces] }}
    metrics: {{ receivers: [otlp], exporters: [file/metrics] }}
    logs: {{ receivers: [otlp], exporters: [file/logs] }}
"""


@contextlib.contextmanager
def free_port():
    """A port of the kernel's choice that it gives to nobody else until the block ends.

    It is bound, and nobody listens on it. A server that sets SO_REUSEADDR, as servers do, still can.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, 0))
        yield held.getsockname()[1]


def answers(port):
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection((HOST, port)):
        return True
    return False


@contextlib.contextmanager
def serving(command, ports, folder, log):
    """Runs a server while the block runs, from when it listens. Afterwards it must end, and well.

    It has an empty environment, so that nothing but the command configures it.
    """
    with open(folder / log, "wb") as output:
        server = subprocess.Popen(command, cwd=folder, env={}, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + SERVER_SECONDS
        while not all(map(answers, ports)):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{command[0]} does not listen:\n{(folder / log).read_text()}")
            time.sleep(0.05)
        yield
        server.terminate()
        if server.wait(SERVER_SECONDS) != 0:
            sys.exit(f"{command[0]} failed:\n{(folder / log).read_text()}")
    finally:
        server.kill()  # Does nothing to one that has ended.
        server.wait()


@contextlib.contextmanager
def collector(binary, folder):
    """Ports by protocol of a Collector, which has written all that it received when the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with free_port() as grpc, free_port() as http:
        (folder / "collector.yaml").write_text(COLLECTOR.format(host=HOST, grpc=grpc, http=http))
        command = [Path(binary).resolve(), "--config", "collector.yaml"]
        with serving(command, (grpc, http), folder, "collector.log"):
            yield {"grpc": grpc, "http/protobuf": http, "http/json": http}


@contextlib.contextmanager
def rotel(folder, onward):
    """Ports by protocol of a rotel that sends on to the port `onward`, by gRPC."""
    package = importlib.util.find_spec("rotel") or sys.exit("rotel is not installed for this Python")
    with free_port() as grpc, free_port() as http:
        command = [
            Path(package.origin).with_name("rotel-agent"), "start",
            "--otlp-grpc-endpoint", f"{HOST}:{grpc}",
            "--otlp-http-endpoint", f"{HOST}:{http}",
            "--exporter", "otlp",
            "--otlp-exporter-endpoint", f"http://{HOST}:{onward}",
            "--otlp-exporter-protocol", "grpc",
        ]  # It tells of itself only with --enable-internal-telemetry.
        with serving(command, (grpc, http), folder, "rotel.log"):
            yield {"grpc": grpc, "http/protobuf": http, "http/json": http}


@contextlib.contextmanager
def nobody():
    with free_port() as port:
        yield dict.fromkeys(PROTOCOLS, port)


@contextlib.contextmanager
def deaf():
    # The kernel takes the connections. Nothing reads from them.
    with socket.create_server((HOST, 0), backlog=1024) as listener:
        yield dict.fromkeys(PROTOCOLS, listener.getsockname()[1])


@contextlib.contextmanager
def peer(name, binary, folder):
    """Ports by protocol of the peer called `name`."""
    with contextlib.ExitStack() as stack:
        if name in ("collector", "rotel"):
            ports = stack.enter_context(collector(binary, folder))
            if name == "rotel":
                ports = stack.enter_context(rotel(folder, ports["grpc"]))
        else:
            ports = stack.enter_context({"nobody": nobody, "deaf": deaf}[name]())
        yield ports


def environment(protocol, ports):
    """This process's, with the peer's endpoint, and with nothing else that configures an exporter."""
    others = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    endpoint = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{ports[protocol]}",
    }
    return others | endpoint


def unwind_when_ended():
    """Lets `finally` run when this process is told to end, so that no server stays behind."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def arguments(usage, peers):
    """The command line of a program that runs another one which sends to one of `peers`."""
    if len(sys.argv) < 6 or sys.argv[3] not in peers or sys.argv[4] not in PROTOCOLS:
        sys.exit(usage)
    binary, folder, name, protocol, *command = sys.argv[1:]
    return Path(binary), Path(folder), name, protocol, command


def main():
    binary, folder, name, protocol, command = arguments(__doc__, ("collector", "rotel", "nobody", "deaf"))
    unwind_when_ended()
    with peer(name, binary, folder) as ports:
        ended = subprocess.run(command, env=environment(protocol, ports), timeout=COMMAND_SECONDS)
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
