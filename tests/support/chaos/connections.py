"""A TCP proxy in front of masters, which can cut connections, refuse them and let them hang."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Sequence

from tests.support.master import free_port


class Proxy:
    """Passes each connection on to one of the masters' ports: to any that accepts it, as a load balancer without health
    checks does."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._targets = list(ports)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._open = True
        self._server: asyncio.Server | None = None

    def start(self) -> Proxy:
        self._thread.start()
        self._do(self._listen())
        self.resume()
        return self

    def stop(self) -> None:
        async def end() -> None:
            assert self._server is not None
            self._server.close()
            self._abort()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def reset(self) -> int:
        """Cut all connections; how many there were. New ones are accepted."""
        return self._do(self._reset())

    def refuse(self) -> None:
        """Cut all connections, and every new one at once, until `resume`."""
        self._open = False
        self.reset()

    def hang(self) -> None:
        """Accept connections, and pass nothing on until `resume`."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def resume(self) -> None:
        self._open = True
        self._loop.call_soon_threadsafe(self._flowing.set)

    # -- inside ----------------------------------------------------------------------------------------

    def _do(self, work: object) -> int:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=256)

    async def _reset(self) -> int:
        return self._abort()

    def _abort(self) -> int:
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer.transport.abort()
        return len(writers) // 2

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            master = await self._connect() if self._open else None
            if master is None:
                writer.transport.abort()
                return
            self._writers |= {writer, master[1]}
            await asyncio.gather(self._pass_on(reader, master[1]), self._pass_on(master[0], writer))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for port in random.sample(self._targets, len(self._targets)):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(2**16):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            writer.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.close()
