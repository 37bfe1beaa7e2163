#!/usr/bin/env python3
"""Can the comparison of ledger.py fail?

    ledger_test.py
"""

import contextlib
import copy
import io
import json
import tempfile
import unittest
from pathlib import Path

import ledger

RESOURCE = {"attributes": [{"key": "service.name", "value": {"stringValue": "trainer"}}]}
SCOPE = {"name": "lens"}
TIMES = {"startTimeUnixNano": "1", "timeUnixNano": "3"}
SPAN = {
    "spanId": "00f067aa0ba902b7",
    "name": "rl.step",
    "startTimeUnixNano": "1",
    "endTimeUnixNano": "3",
    "attributes": [{"key": "rl.iteration", "value": {"intValue": "7"}}],
}
SUM = {"aggregationTemporality": 2, "isMonotonic": True}
LOG = {"eventName": "rl.step.metrics", "attributes": [{"key": "rl.kl", "value": {"doubleValue": 0}}]}

COUNTED = [
    {"resource": RESOURCE},
    {"span": SPAN | {"startTimeUnixNano": "*", "endTimeUnixNano": "*"}, "scope": SCOPE},
    {"metric": {"name": "tokens", "sum": SUM}, "point": {"asInt": "5"} | dict.fromkeys(TIMES, "*"), "scope": SCOPE},
    {"log": LOG, "scope": SCOPE},
]
EARLIER, LAST = TIMES | {"asInt": "2", "timeUnixNano": "2"}, TIMES | {"asInt": "5"}
RECEIVED = {
    "Spans": {"scope": SCOPE, "spans": [SPAN]},
    "Metrics": {"scope": SCOPE, "metrics": [{"name": "tokens", "sum": SUM | {"dataPoints": [LAST, EARLIER]}}]},
    "Logs": {"scope": SCOPE, "logRecords": [LOG]},
}


class Comparison(unittest.TestCase):
    def setUp(self):
        self.received = copy.deepcopy(RECEIVED)
        self.span = self.received["Spans"]["spans"][0]
        self.resources = {group: copy.deepcopy(RESOURCE) for group in RECEIVED}

    def said(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            for signal, (group, *_) in ledger.SIGNALS.items():
                groups = {"resource": self.resources[group], "scope" + group: [self.received[group]]}
                line = json.dumps({"resource" + group: [groups]})
                (Path(folder) / f"{signal}-received.jsonl").write_text(line + "\n")
            output = "before\n" + "".join(f"ledger {json.dumps(line)}\n" for line in COUNTED)
            self.good = ledger.check(output, Path(folder), "grpc", lambda record: False)
        return said.getvalue()

    def finds(self, complaint):
        said = self.said()
        self.assertIn(complaint, said)
        self.assertFalse(self.good)
        self.assertEqual(said.count("as the program counted"), 2, said)  # The other signals are.

    def test_the_same_is_the_same(self):
        self.assertEqual(self.said().count("as the program counted"), 3)
        self.assertTrue(self.good)

    def test_a_missing_span_is_found(self):
        self.received["Spans"]["spans"] = []
        self.finds("span rl.step 00f067aa0ba902b7: not received")

    def test_a_span_that_came_twice_is_found(self):
        self.received["Spans"]["spans"] *= 2
        self.finds("span rl.step 00f067aa0ba902b7: received once more")

    def test_a_span_too_many_is_found(self):
        self.received["Spans"]["spans"].append(SPAN | {"spanId": "00f067aa0ba902b8"})
        self.finds("span rl.step 00f067aa0ba902b8: received but not in the ledger")

    def test_a_changed_type_of_an_attribute_is_found(self):
        self.span["attributes"][0]["value"] = {"stringValue": "7"}
        self.finds('span.attributes[rl.iteration].value.intValue: the ledger has "7", received nothing')

    def test_a_changed_bit_of_a_double_is_found(self):
        self.received["Logs"]["logRecords"][0]["attributes"][0]["value"] = {"doubleValue": -0.0}
        self.finds("log.attributes[rl.kl].value.doubleValue: the ledger has 0.0, received -0.0")

    def test_a_span_that_ends_before_it_begins_is_found(self):
        self.span["startTimeUnixNano"] = "4"
        self.finds("begins at 4, ends at 3")

    def test_an_event_outside_of_its_span_is_found(self):
        self.span["events"] = [{"timeUnixNano": "4"}]
        self.finds("has events at [4]")

    def test_a_wrong_last_point_is_found(self):
        self.received["Metrics"]["metrics"][0]["sum"]["dataPoints"] = [LAST | {"asInt": "2"}, EARLIER]
        self.finds('point.asInt: the ledger has "5", received "2"')

    def test_another_resource_is_found(self):
        self.resources["Logs"]["attributes"].append({"key": "process.pid", "value": {"intValue": "1"}})
        self.finds("a second resource")

    def test_an_attribute_that_no_resource_has_is_found(self):
        self.resources["Logs"]["attributes"] = []
        self.finds('{"key": "service.name", "value": {"stringValue": "trainer"}} is not in []')


if __name__ == "__main__":
    unittest.main()
