"""Does what a Collector decoded say the same as the ledger of the program that sent it?

The ledger is what the program counted itself: the lines of its output that begin with `ledger `,
each with one JSON object. `{"resource": …}` has attributes that the one resource of all records
must hold, among others. `{"span": …}`, `{"metric": …, "point": …}` and `{"log": …}` are the
records, in OTLP-JSON, each with its "scope" and, where it has one, the scope's "schemaUrl".
"*" stands for any value that is present.
"""

import json

# What a group, its list of records and, in the ledger, one record is called.
SIGNALS = {
    "traces": ("Spans", "spans", "span"),
    "metrics": ("Metrics", "metrics", "point"),
    "logs": ("Logs", "logRecords", "log"),
}
METRICS = {"gauge", "sum", "histogram", "exponentialHistogram", "summary"}

# proto3 does not tell a field that is absent from one that has the default of its type, and its
# JSON may do either, so that a default is dropped. But where presence means something it stays:
# which value a oneof holds (0 is not ""), and the `optional` sum, min, max.
PRESENT = {"stringValue", "boolValue", "intValue", "doubleValue", "bytesValue", "arrayValue", "kvlistValue"}
PRESENT |= {"asInt", "asDouble", "min", "max"} | METRICS
DEFAULTS = (None, 0, "0", "", False, [], {})

ABSENT = object()


def check(output, folder, over, lost):
    """Says whether the Collector's files in `folder` are what the program counted in its output.

    `over` tells a person how they came there; `lost` tells of a record whether it cannot come that way.
    """
    attributes, ledger = counted(output)
    if not any(ledger.values()):
        print("the program counted nothing")
        return False
    first, good = None, True
    for signal, records in ledger.items():
        resources, received = decoded(signal, folder / f"{signal}-received.jsonl")
        first = first or next(iter(resources), None)
        wanted = [record for record in records if not lost(record)]
        received = [record for record in received if not lost(record)]
        complaints = [
            *of_resources(resources, first, attributes),
            *of_records(wanted, received),
            *(line for record in received for line in of_times(record)),
        ]
        if complaints:
            good = False
            print(f"{signal} over {over}: not what the program counted", *complaints, sep="\n  ")
        else:
            what = "series" if signal == "metrics" else SIGNALS[signal][2] + "s"
            print(f"{signal} over {over}: {len(received)} {what}, as the program counted")
    return good


def counted(output):
    """Of a program's output: the resource's attributes, and by signal the records."""
    lines = [same(read(line.removeprefix("ledger "))) for line in output.splitlines() if line.startswith("ledger ")]
    attributes = [attribute for line in lines for attribute in line.get("resource", {}).get("attributes", [])]
    return attributes, {signal: [line for line in lines if key in line] for signal, (*_, key) in SIGNALS.items()}


def decoded(signal, path):
    """Of a Collector's file: the resources, one for each group, and the records, as in the ledger."""
    group, items, key = SIGNALS[signal]
    resources, records = [], []
    for line in path.read_text().splitlines():
        for of_resource in read(line)["resource" + group]:
            for of_scope in of_resource.pop("scope" + group, []):
                scope = {"scope": of_scope.get("scope"), "schemaUrl": of_scope.get("schemaUrl")}
                for item in of_scope.get(items, []):
                    if item.get("name", "").startswith("otel.sdk."):
                        # What the delivery tells of itself says what it had done when it was asked.
                        continue
                    if signal == "metrics":
                        points = next((item[kind] for kind in METRICS if kind in item), {}).pop("dataPoints", [])
                        records += [same(scope | {"metric": item, "point": point}) for point in points]
                    else:
                        records.append(same(scope | {key: item}))
            resources.append(same(of_resource))
    return resources, last_of_each_series(records) if signal == "metrics" else records


def last_of_each_series(records):
    """Metrics are cumulative and come again and again: the last point says all."""
    last = {}
    for record in sorted(records, key=lambda record: int(record["point"].get("timeUnixNano", 0))):
        last[text(record | {"point": record["point"].get("attributes")})] = record
    return list(last.values())


def read(line):
    # All numbers are doubles: 1.0 is 1, and -0 keeps its sign. 64-bit integers are strings.
    return json.loads(line, parse_int=float)


def text(value):
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def same(value):
    """The value without what may as well be absent, and a point's attributes sorted: they are a set."""
    if isinstance(value, list):
        return [same(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    kept = {key: same(inner) for key, inner in value.items()}
    if "attributes" in kept.get("point", {}):
        kept["point"]["attributes"].sort(key=text)
    return {key: inner for key, inner in kept.items() if key in PRESENT or inner not in DEFAULTS}


def of_resources(resources, first, attributes):
    """Complaints, unless all resources are the first, which holds the attributes."""
    for resource in {text(resource): resource for resource in resources}.values():
        if resource != first:
            yield f"a second resource: {text(resource)}\n    beside {text(first)}"
        held = resource.get("resource", {}).get("attributes", [])
        for attribute in attributes:
            if all(any(differences(attribute, other)) for other in held):
                yield f"resource: {text(attribute)} is not in {text(held)}"


def of_records(wanted, received):
    """Complaints, unless each record of the ledger was received exactly once, and no other."""
    rest, missing = list(received), []
    # Those that say everything come first, so that none loses its match to one that says less.
    for record in sorted(wanted, key=lambda record: text(record).count('"*"')):
        match = next((place for place, other in enumerate(rest) if not any(differences(record, other))), None)
        if match is None:
            missing.append(record)
        else:
            del rest[match]
    for record in missing:
        other = next((place for place, other in enumerate(rest) if name(other) == name(record)), None)
        if other is None:
            yield f"{name(record)}: not received"
        else:
            yield "\n    ".join([f"{name(record)}:", *differences(record, rest.pop(other))])
    known = set(map(name, wanted))
    for record in rest:
        how = "once more" if name(record) in known else "but not in the ledger"
        yield f"{name(record)}: received {how}: {text(record)}"


def name(record):
    """What a person calls it; two records of one name are meant to be the same."""
    if span := record.get("span"):
        return f"span {span.get('name')} {span.get('spanId')}"
    if point := record.get("point"):
        return f"point of {record['metric'].get('name')} {text(point.get('attributes'))}"
    return f"log {record['log'].get('eventName')} {text(record['log'].get('body'))}"


def differences(wanted, received, path=""):
    """Where the received value is not what is wanted, a line for each place."""
    if wanted == "*" and received is not ABSENT:
        return
    if isinstance(wanted, dict) and isinstance(received, dict):
        for key in sorted(wanted | received):
            yield from differences(wanted.get(key, ABSENT), received.get(key, ABSENT), f"{path}.{key}".lstrip("."))
    elif isinstance(wanted, list) and isinstance(received, list) and len(wanted) == len(received):
        for place, (one, other) in enumerate(zip(wanted, received)):
            label = one.get("key", place) if isinstance(one, dict) else place
            yield from differences(one, other, f"{path}[{label}]")
    # By their text, because for Python 0.0 is -0.0.
    elif repr(wanted) != repr(received):
        one, other = ("nothing" if value is ABSENT else text(value) for value in (wanted, received))
        yield f"{path}: the ledger has {one}, received {other}"


def of_times(record):
    """A complaint, if time runs backwards in a span or in a point."""
    item = record.get("span") or record.get("point")
    if item:
        begin = int(item.get("startTimeUnixNano", 0))
        end = int(item.get("endTimeUnixNano") or item.get("timeUnixNano", 0))
        events = [int(event.get("timeUnixNano", 0)) for event in item.get("events", [])]
        if not all(begin <= time <= end for time in (end, *events)):
            yield f"{name(record)}: begins at {begin}, ends at {end}, has events at {events}"
