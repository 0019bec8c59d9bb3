"""Talks to the echo agent with the client of a2a-sdk, blocking and streaming, and prints ok."""

import asyncio
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from a2a.types import (
    Message,
    Part,
    Role,
    TaskIdParams,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)


def message(text):
    return Message(message_id=uuid.uuid4().hex, role=Role.user, parts=[Part(root=TextPart(text=text))])


def answer(task):
    return task.status.message.parts[0].root.text


async def turn(client, text):
    updates, task = [], None
    async for event in client.send_message(message(text)):
        task, update = event
        if update is not None:
            assert isinstance(update, TaskStatusUpdateEvent), update
            updates.append(update)
    return task, updates


async def main(base):
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
        assert card.protocol_version == "0.3.0" and card.capabilities.streaming, card
        assert [e.uri.split(":")[2] for e in card.capabilities.extensions][:3] == ["agent-config/v1", "mcp-config/v1", "trajectory/v1"], card
        card.url = base + card.url

        blocking = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        streaming = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)

        task, _ = await turn(blocking, "hi")
        assert task.status.state == TaskState.completed and answer(task) == "Echo: hi", task
        assert task.status.message.parts[1].root.data["usage"] == {"tool_call_count": 0}, task

        task, updates = await turn(streaming, "live-steps 2")
        states = [(u.status.state, u.final) for u in updates]
        assert states == [(TaskState.working, False)] * 3 + [(TaskState.completed, True)], states
        assert [u.metadata["step"] for u in updates if u.metadata] == [1, 2], updates

        for client in (blocking, streaming):
            task, _ = await turn(client, "say 300000")
            assert answer(task) == "x" * 300000, len(answer(task))
            task, _ = await turn(client, "fail")
            assert task.status.state == TaskState.failed, task

        again = await blocking.get_task(TaskQueryParams(id=task.id, history_length=1))
        assert again.id == task.id and len(again.history) == 1, again

        try:
            await blocking.cancel_task(TaskIdParams(id=task.id))
            raise AssertionError("a task that ended was canceled")
        except A2AClientJSONRPCError as e:
            assert e.error.code == -32002, e

        polling = ClientFactory(ClientConfig(httpx_client=http, streaming=False, polling=True)).create(card)
        task, _ = await turn(polling, "sleep 3600")
        assert task.status.state == TaskState.submitted, task
        task = await polling.cancel_task(TaskIdParams(id=task.id))
        assert task.status.state == TaskState.canceled, task
    print("ok")


asyncio.run(main(sys.argv[1]))
