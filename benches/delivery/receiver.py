#!/usr/bin/env python3
"""Which spans did a receiver take that misbehaves?

    receiver.py FAULT

Takes OTLP by HTTP on a port of the kernel's choice, which it prints. FAULT is one of

    hole         takes every connection and never answers
    unavailable  answers 503 to everything
    slow         answers after two seconds
    dies         reads half of a request and closes the connection
    rejects      takes a request but for three of its spans, and says so

When its input ends it prints how many spans it got, by their ids, and how many it accepted, and ends.
"""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("hole", "unavailable", "slow", "dies", "rejects")
SLOW_SECONDS = 2
REJECTED = 3


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        fault, length = self.server.fault, int(self.headers["Content-Length"])
        if fault == "dies":
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        ids = list(span_ids(self.rfile.read(length)))
        accepted = {"slow": ids, "rejects": ids[REJECTED:]}.get(fault, [])
        with self.server.lock:
            self.server.got.update(ids)
            self.server.accepted.update(accepted)
        if fault == "hole":
            self.server.ends.wait()
            return
        if fault == "slow":
            time.sleep(SLOW_SECONDS)
        # ExportTraceServiceResponse { partial_success { rejected_spans } }
        rejected = len(ids) - len(accepted) if fault == "rejects" else 0
        answer = bytes([0x0A, 2, 0x08, rejected]) if rejected else b""
        self.send_response(503 if fault == "unavailable" else 200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """Whoever hangs up does so on purpose."""


def span_ids(request):
    """The ids of a request's spans: ResourceSpans are its field 1, and ScopeSpans and Spans fields 2 within."""
    for resource_spans in fields(request, 1):
        for scope_spans in fields(resource_spans, 2):
            for span in fields(scope_spans, 2):
                yield from map(bytes, fields(span, 2))


def fields(message, wanted):
    """The values of a field of a message, as far as they are of a length that is given."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == 2:
            length, at = varint(message, at)
            if key >> 3 == wanted:
                yield memoryview(message)[at : at + length]
            at += length
        elif kind == 0:
            _, at = varint(message, at)
        else:
            at += {1: 8, 5: 4}[kind]


def varint(message, at):
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in FAULTS:
        sys.exit(__doc__)
    server = Server(("127.0.0.1", 0), Handler)
    server.fault, server.lock, server.ends = sys.argv[1], threading.Lock(), threading.Event()
    server.got, server.accepted = set(), set()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.ends.set()
    with server.lock:
        print(len(server.got), len(server.accepted), flush=True)


if __name__ == "__main__":
    main()
