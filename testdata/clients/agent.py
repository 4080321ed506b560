"""Lists and calls every tool of `stepwell mcp` with the official client of the Model Context Protocol.

Usage: agent.py PROGRAM ORCHESTRATION_URL, of a service in fixture mode.
"""

import asyncio
import json
import sys

from mcp import StdioServerParameters
from mcp.client.client import Client

TEMPLATE = {"name": "x", "version": "1.0.0", "steps": [{"name": "pay", "handler": {"callable": "shop.pay"}}]}

# What tools need, by the names of their arguments.
VALUES = {
    "template": "demo/failing", "task": "latest", "task_or_entry": "latest", "step": "charge", "text": "declined", "name": "box",
    "json": {"match": {"step": "charge"}, "outcomes": [{"result": {"paid": True}}]},
}
OPTIONAL = {
    "task_create": {"wait": "10s"}, "task_again": {"from": "reserve"}, "task_cancel": {"task": "latest"},
    "task_events": {"task": "latest"}, "dlq_update": {"notes": "seen"}, "dlq_close": {"select": {"over": True}, "yes": True},
    "step_complete": {"select": {"step": "charge"}}, "step_resolve": {"select": {"step": "charge"}}, "step_reset": {"select": {"step": "charge"}},
    "step_retry": {"select": {"step": "charge"}}, "events_resend": {"delivery": "1-1-nobody"},
    "fixture_verify": {"json": {"match": {"step": "charge"}, "count": {"at_least": 1}}}, "fixture_clock": {"action": "freeze"},
    "fixture_sandbox_add": {"name": "box"}, "template_check": {"template": TEMPLATE},
    "run": {"template": json.dumps(TEMPLATE), "stub": {"pay": {"paid": True}}, "context": {"order": 7}},
}
# Tools whose calls are refused here, and why.
FAILURES = {
    "task_create": "blocked_by_failures", "step_complete": "nothing was done yet", "step_resolve": "nothing was done yet",
    "step_reset": "nothing was done yet", "events_resend": "no delivery", "step_fail": "", "step_cancel": "", "task_cancel": "",
}


async def call(client, tool):
    arguments = {name: VALUES[name] for name in tool.input_schema.get("required", [])} | OPTIONAL.get(tool.name, {})
    result = await client.call_tool(tool.name, arguments)
    text = "\n".join(c.text for c in result.content)
    if result.is_error and tool.name not in FAILURES or FAILURES.get(tool.name, "") not in text:
        raise AssertionError(f"{tool.name} {arguments}: got {text}")
    if not result.is_error and text and tool.name != "template_check":
        json.loads(result.content[0].text)


async def main(program, url):
    def start(mode, *flags):
        return Client(StdioServerParameters(command=program, args=["mcp", "--url", url, *flags]), mode=mode)

    async with start("auto", "--allow-changes") as changing, start("legacy") as reading:
        tools = {t.name: t for t in (await changing.list_tools()).tools}
        harmless = (await reading.list_tools()).tools
        reset = tools.pop("fixture_reset")
        for tool in tools.values():
            await call(changing, tool)
        for tool in harmless:
            await call(reading, tool)
        await call(changing, reset)
        if {t.name for t in harmless} != {t.name for t in tools.values() if t.annotations and t.annotations.read_only_hint}:
            raise AssertionError(f"got {harmless} without changes")
        print(f"{len(tools) + 1} tools, {len(harmless)} of which read")


asyncio.run(main(*sys.argv[1:]))
