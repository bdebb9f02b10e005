"""An application of FastAPI's, on Starlette."""

from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

app = FastAPI()


@app.get("/", response_class=PlainTextResponse)
async def hello():
    return "hello"


@app.post("/upper")
async def upper(request: Request):
    return Response((await request.body()).upper())


@app.get("/long")
async def long():
    async def pieces():
        for i in range(100):
            yield bytes([i]) * 10_000

    return StreamingResponse(pieces())


@app.websocket("/talk")
async def talk(socket: WebSocket):
    await socket.accept()
    try:
        while True:
            await socket.send_text((await socket.receive_text()).upper())
    except WebSocketDisconnect:
        pass
