"""HTTP/1.1 on libos' TCP: files, and handlers. `corelane run http --root DIR`.

Rooms of code, lowest first. Each does one thing and calls only those before it:

- `llhttp/`, `request.{h,c}`: what comes, as a request; a library parses
- `path`, `date`, `types`, `condition`: texts in, a decision out
- `file`, `loader`, `cache`: files in memory; threads that read them, so that no kthread waits for a disk
- `service.h`, `exchange`, `respond`, `pieces`, `files`: an answer
- `route`, `handler`, `handlers.py`: functions that answer, compiled and plain Python
- `conn.{h,c}`: a connection, and for how long each of its states may last. **Start there.**
- `openssl`, `tls_context`, `tls`: TLS between a connection and what carries it, by a library
- `wire`, `host`: what carries the bytes: libos' TCP; nothing, for tests
- `serve.{h,c}`, `app.py`: the server
- `compiled.{h,c}`: the same for handlers that were compiled ahead of time

Threads: a connection is worked on by one kthread at a time, where its segment came in. Memory: a bound for files, and
one for all requests and answers that are under way.
"""
