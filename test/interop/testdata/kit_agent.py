"""An agent on the reference's library that answers in a stream and offers all that the library does. It works alone, asks its peer, and plays
the user of another one."""
import asyncio
import json
import urllib.request
from pathlib import Path

from agentenv_protocol.a2a_agent import (
    MCP_CONFIG_V1, PEER_AGENTS_V1, SKILL_CONFIG_V1, SNAPSHOT_V1, TRAJECTORY_V1, TRIGGERS_V1, AgentConfig, AgentEnvAgent, AgentIdentity,
    BundleSkillRequest, FilePart, InlineSkillRequest, NamespaceChangelogEnableRequest, NamespaceChangelogEnableResponse, NamespaceUploader,
    ObjectChangelogApplyRequest, ObjectChangelogApplyResponse, ObjectSnapshotLoadRequest, ObjectSnapshotLoadResponse, ObjectSnapshotSaveRequest,
    ObjectSnapshotSaveResponse, OperationReference, SkillAddResponse, SnapshotUploadedObjects, TaskProgress, TaskRequest, TaskResult, TextPart,
    Usage, a2a_agent, download, enable, extension, upload,
)

NOTES, SKILLS = Path("/work/notes.txt"), Path("/work/skills")


class Config(AgentConfig):
    model: str | None = None
    system_prompt: str | None = None
    output_format: dict | None = None


def content(part):
    if isinstance(part, FilePart):
        return [part.name, part.mime_type, part.bytes]
    return part.text if isinstance(part, TextPart) else dict(part.data)


def ask_peer(url, words):
    """Gives the peer named "user" a task by the tools of the library, and returns how that stands once it has ended."""
    def call(tool, **arguments):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=60) as answer:
            return json.loads(json.load(answer)["result"]["content"][0]["text"])
    return [peer["name"] for peer in call("peer_list")], call("peer_send_message", name="user", prompt=words)


@a2a_agent(identity=AgentIdentity(name="whole", description="Offers everything", version="1.0.0"), config=Config,
           extensions=(MCP_CONFIG_V1, enable(TRAJECTORY_V1, live=True), TRIGGERS_V1, SKILL_CONFIG_V1, PEER_AGENTS_V1,
                       enable(SNAPSHOT_V1, features=("changelog",))))
class Whole(AgentEnvAgent):
    def __init__(self):
        super().__init__()
        self.heard = {}      # of each conversation, what was said in it
        self.changes = None  # where what changes is written
        self.count = 0       # of the changes

    async def run(self, request: TaskRequest[Config]):
        text = "".join(part.text for part in request.parts if isinstance(part, TextPart))
        heard = self.heard.setdefault(request.context_id, [])
        heard.append(text)
        request.trajectory.set_format("whole/v1")
        request.trajectory.append({"told": text, "parts": [content(part) for part in request.parts]})
        yield TaskProgress(parts=(TextPart(text="thinking"),), metadata={"step": 1})
        if text == "ask your peer":
            peers, answer = await asyncio.to_thread(ask_peer, request.mcp_servers["peer_agents"]["url"], "knock")
            request.trajectory.append({"peers": peers, "state": answer["state"], "response": answer.get("response")})
        request.trajectory.append({"skills": sorted(skill["name"] for skill in request.skills)})
        with NOTES.open("a") as notes:
            notes.write(text + "\n")
        if self.changes:
            self.count += 1
            await self.changes.upload(f"{self.count:06d}.tgz", text.encode())
        result = TaskResult.builder().succeeded().session_ref(str(len(heard))).usage(Usage(tool_call_count=1))
        wants = (request.config.output_format or {}).get("required", [])
        if wants == ["message", "done"]:
            result.add_text(json.dumps({"message": f"go on {len(heard)}", "done": len(heard) > 2, "mood": "calm"}))
        elif wants:
            result.add_structured_output({"heard": heard})
        else:
            result.add_text("I heard").add_text(", ".join(heard))
        yield result.build()

    @extension(OperationReference(SKILL_CONFIG_V1, "add", "inline"))
    async def add_text(self, request: InlineSkillRequest) -> SkillAddResponse:
        self.keep(request.name, "SKILL.md").write_text(request.skill_md)
        return SkillAddResponse(name=request.name)

    @extension(OperationReference(SKILL_CONFIG_V1, "add", "bundle"))
    async def add_files(self, request: BundleSkillRequest) -> SkillAddResponse:
        for file in request.skill_bundle.files:
            await download(file.object, self.keep(request.name, file.path))
        return SkillAddResponse(name=request.name)

    def keep(self, skill, path):
        file = SKILLS / skill / path
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    @extension(OperationReference(SNAPSHOT_V1, "save"))
    async def save(self, request: ObjectSnapshotSaveRequest) -> ObjectSnapshotSaveResponse:
        heard = await upload(request.objects.trajectory, json.dumps(self.heard[request.context_id]).encode())
        notes = await upload(request.objects.workspace, NOTES) if request.objects.workspace else None
        return ObjectSnapshotSaveResponse(context_id=request.context_id, objects=SnapshotUploadedObjects(trajectory=heard, workspace=notes))

    @extension(OperationReference(SNAPSHOT_V1, "load"))
    async def load(self, request: ObjectSnapshotLoadRequest) -> ObjectSnapshotLoadResponse:
        file, context = Path("/tmp/heard.json"), request.target_context_id or "loaded"
        await download(request.objects.trajectory, file)
        self.heard[context] = json.loads(file.read_text())
        if request.objects.workspace:
            await download(request.objects.workspace, NOTES)
        return ObjectSnapshotLoadResponse(context_id=context)

    @extension(OperationReference(SNAPSHOT_V1, "enable"))
    async def enable_changelog(self, request: NamespaceChangelogEnableRequest) -> NamespaceChangelogEnableResponse:
        self.changes = NamespaceUploader(request.write_namespace)
        return NamespaceChangelogEnableResponse(roots=request.roots or ["/work"])

    @extension(OperationReference(SNAPSHOT_V1, "apply"))
    async def apply(self, request: ObjectChangelogApplyRequest) -> ObjectChangelogApplyResponse:
        context = request.target_context_id or "replayed"
        heard = self.heard.setdefault(context, [])
        for change in request.increments:
            file = Path(f"/tmp/change-{change.sequence}")
            await download(change.object, file)
            heard.append(f"{change.sequence}:{file.read_text()}")
        return ObjectChangelogApplyResponse(count=len(request.increments), context_id=context if request.resume_conversation else None)


if __name__ == "__main__":
    Whole().serve()
