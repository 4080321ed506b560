#!/usr/bin/env python3
"""Runs a task through the mount-point API and prints its graph as an outline.

    python3 examples/mount_client.py [--url URL] [--token TOKEN] [NAMESPACE/NAME]
"""
import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ENDED = ("complete", "cancelled", "resolved_manually", "error")  # error: until an operator acts


class Client:
    def __init__(self, url, token):
        self.url, self.token = url.rstrip("/"), token

    def call(self, method, *path, body=None, **query):
        url = "/".join([self.url, *(urllib.parse.quote(p, safe="") for p in path)])
        request = urllib.request.Request(url + "?" + urllib.parse.urlencode(query), method=method)
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            error = json.load(e)["error"]
            sys.exit(f"{method} {url}: {e.code} {error['type']}: {error['message']}")


def choose(client, wanted):
    """Returns the handler NAMESPACE/NAME, or exits with a list of handlers if it does not exist."""
    namespaces = client.call("GET", "handlers")["namespaces"]
    names = [f"{n['name']}/{handler}" for n in namespaces for handler in n["handlers"]]
    if wanted not in names:
        sys.exit(f"no handler {wanted}; handlers: " + ", ".join(names))
    return client.call("GET", "handlers", *wanted.split("/", 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080/stepwell")
    parser.add_argument("--token", default=os.environ.get("STEPWELL_TOKEN"))
    parser.add_argument("--context", type=json.loads, default={})
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for the task's end")
    parser.add_argument("handler", nargs="?", default="demo/diamond", metavar="NAMESPACE/NAME")
    args = parser.parse_args()
    client = Client(args.url, args.token)
    handler = choose(client, args.handler)
    task = client.call("POST", "tasks", body={"context": args.context, **{
        k: handler[k] for k in ("namespace", "name", "version")}})
    deadline = time.monotonic() + args.patience
    while task["status"] not in ENDED and time.monotonic() < deadline:
        time.sleep(0.05)
        task = client.call("GET", "tasks", task["id"])
    task = client.call("GET", "tasks", task["id"], include_dependencies="true")
    print(f"{task['full_name']}: {task['status']}; {task['dependencies']['analysis']}")
    steps = {step["id"]: step for step in task["steps"]}
    for node in task["dependency_analysis"]["dependency_graph"]["nodes"]:
        after = ", ".join(steps[node["id"]]["depends_on"])
        status = steps[node["id"]]["status"]
        print("  " * (node["level"] + 1) + f"{node['name']}: {status}" + (after and f" (after {after})"))
    sys.exit(task["status"] != "complete")


if __name__ == "__main__":
    main()
