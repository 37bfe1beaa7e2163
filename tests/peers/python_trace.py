#!/usr/bin/env python3
"""Is it one trace when the driver calls a Python program, and when a Python program calls the driver?

    python_trace.py COLLECTOR_BINARY DRIVER_BINARY

Both send their spans to a Collector. The headers between them are Python's OpenTelemetry on one
side and ours on the other. Exit 1, with the spans, unless each server's span is the child of its client's.
"""

import contextlib
import http.client
import http.server
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from opentelemetry import baggage, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace import RandomIdGenerator, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import ledger
import peer

PROTOCOL = "http/protobuf"
CONFIG = "telemetry:\n  enabled: true\n  span_groups: all\n  exporter: otlp\n"
W3C = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
# The bits of a span's flags that say: it is known whether the parent is remote, and it is.
REMOTE = 0x100 | 0x200


@contextlib.contextmanager
def tracer(ports):
    exporter = OTLPSpanExporter(f"http://{peer.HOST}:{ports[PROTOCOL]}/v1/traces")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("python")
    provider.shutdown()


@contextlib.contextmanager
def driver(folder, ports, *command):
    """The driver's process. It must end well when the block has ended, and in any case before the deadline."""
    (folder / "run.yaml").write_text(CONFIG)
    environment = peer.environment(PROTOCOL, ports)
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    deadline = threading.Timer(peer.SERVER_SECONDS, process.kill)
    deadline.start()
    try:
        yield process
        process.communicate()
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    finally:
        deadline.cancel()
        process.kill()
        process.wait()


def driver_calls(binary, folder, ports):
    with tracer(ports) as python:

        class Handler(http.server.BaseHTTPRequestHandler):
            log_message = lambda *_: None

            def do_GET(self):
                context = W3C.extract({key.lower(): value for key, value in self.headers.items()})
                with python.start_as_current_span("python.serve", context, trace.SpanKind.SERVER):
                    self.send_response(200)
                    self.end_headers()

        with http.server.HTTPServer((peer.HOST, 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://{peer.HOST}:{server.server_port}/"
            with driver(folder, ports, binary, "call", url, "run.yaml"):
                pass
            server.shutdown()


def python_calls(binary, folder, ports):
    # The trace has begun elsewhere, so that there is a trace state to hand on.
    ids = RandomIdGenerator()
    state = trace.TraceState([("vendor", "1")])
    before = trace.SpanContext(ids.generate_trace_id(), ids.generate_span_id(), True, trace.TraceFlags(1), state)
    context = baggage.set_baggage("rl.iteration", "7", trace.set_span_in_context(trace.NonRecordingSpan(before)))
    with tracer(ports) as python, driver(folder, ports, binary, "serve", "run.yaml") as process:
        place = next((line.split()[1] for line in process.stdout if line.startswith("listening ")), None)
        if place is None:
            sys.exit("the driver does not listen")
        with python.start_as_current_span("python.call", context, trace.SpanKind.CLIENT) as span:
            headers = {}
            W3C.inject(headers, trace.set_span_in_context(span, context))
            with contextlib.closing(http.client.HTTPConnection(place, timeout=peer.SERVER_SECONDS)) as connection:
                connection.request("GET", "/", headers=headers | {"Connection": "close"})
                if connection.getresponse().status >= 300:
                    sys.exit("the driver refuses the request")


def claims(spans, client, server):
    """What should hold of the spans, and whether it does."""
    named = {span["name"]: span for span in spans}
    if not {client, server} <= named.keys():
        yield f"there are {client} and {server}", False
        return
    above, below = named[client], named[server]
    yield "each span is there once", len(named) == len(spans)
    yield "all spans are one trace", len({span["traceId"] for span in spans}) == 1
    yield f"{server} is a child of {client}", below.get("parentSpanId") == above["spanId"]
    yield f"{server} knows that its parent is remote", int(below.get("flags", 0)) & REMOTE == REMOTE
    if client == "python.call":
        yield f"{server} has the trace state", below.get("traceState") == "vendor=1"
        for span in spans:
            values = [one["value"] for one in span.get("attributes", []) if one["key"] == "rl.iteration"]
            if span is not above:  # Baggage is text; whether the attribute is a number is the driver's choice.
                yield f"{span['name']} has the baggage", values in ([{"intValue": "7"}], [{"stringValue": "7"}])


def holds(binaries, scenario, client, server):
    """Plays the scenario, and says whether all that should hold of its spans does."""
    collector, driver_binary = binaries
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with peer.collector(collector, folder) as ports:
            scenario(driver_binary, folder, ports)
        _, records = ledger.decoded("traces", folder / "traces-received.jsonl")
    spans = [record["span"] for record in records]
    failed = [claim for claim, true in claims(spans, client, server) if not true]
    if not failed:
        print(f"{client} calls {server}: {len(spans)} spans, one trace")
    else:
        lines = [*(f"not so: {claim}" for claim in failed), *map(ledger.text, spans)]
        print(f"{client} calls {server}:", *lines, sep="\n  ")
    return not failed


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    peer.unwind_when_ended()
    binaries = [Path(argument).resolve() for argument in sys.argv[1:]]
    good = holds(binaries, driver_calls, "rl.test.call", "python.serve")
    good &= holds(binaries, python_calls, "python.call", "rl.test.serve")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
