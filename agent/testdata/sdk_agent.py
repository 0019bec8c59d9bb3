"""An agent on the public a2a-sdk. Arguments: 1 to stream, else 0. It prints the port that it listens on."""
import asyncio
import socket
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, Part, TaskState, TextPart
from a2a.utils import new_agent_text_message, new_task


class Executor(AgentExecutor):
    async def execute(self, context, queue):
        task = context.current_task or new_task(context.message)
        await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)

        def say(text):
            return new_agent_text_message(text, task.context_id, task.id)

        await updater.update_status(TaskState.working, say("thinking"))
        words = context.get_user_input()
        if words == "sleep":
            await asyncio.sleep(3600)
        elif words == "artifact":
            await updater.add_artifact([Part(root=TextPart(text="in"))], artifact_id="1")
            await updater.add_artifact([Part(root=TextPart(text="pieces"))], artifact_id="1", append=True)
            await updater.complete()
        elif words == "ask":
            await updater.requires_input(say("which?"), final=True)
        elif words == "refuse":
            await updater.reject(say("no"))
        elif words == "long":
            await updater.complete(say("x" * 300_000))
        else:
            await updater.complete(say("Echo: " + words))

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
card = AgentCard(
    name="sdk", description="an agent on a2a-sdk", url=f"http://127.0.0.1:{port}/", version="1", skills=[],
    capabilities=AgentCapabilities(streaming=sys.argv[1] == "1"), default_input_modes=["text"], default_output_modes=["text"],
)
app = A2AStarletteApplication(agent_card=card, http_handler=DefaultRequestHandler(Executor(), InMemoryTaskStore()))
print(port, flush=True)
uvicorn.Server(uvicorn.Config(app.build(), log_level="error")).run(sockets=[listener])
