"""corelane.cli: the `corelane` command.

    corelane    the script that is installed: Ctrl-C ends it from its first import on
    main.py     finds the subcommand, prints errors as one sentence, turns them into exit codes
    usage.py    parsers, and the error that a command line is wrong
    unwinding.py  SIGTERM as an exception, for commands that make folders and namespaces
    streams.py  standard streams that are closed or full, and paths that are no text
    doctor.py   what this machine gives, what is missing, the command that mends it
    up.py       the iokernel in the foreground
    run.py      an application: built in, module:handler, a program for asyncio (coroutines.py), or a compiled .so
                (elf.py reads it first). It says what it does (saying.py), and waits for whom it replaces (replacing.py)
    service.py  run of a service that was compiled ahead of time: becoming corelane-run
    compile.py  compiling one
    posix.py    run --posix: a stock Linux program with its TCP sockets on the dataplane (--check: posix_check.py)
    imports.py  modules of the current folder
    ps.py       the running iokernel and its applications
    top.py      the same, again and again, with rates and who has the cores (tables.py); screen.py: with keys
    metrics.py  all counters, for Prometheus and OpenTelemetry: measures.py names them, exposition.py has the formats,
                telemetry.py sends them
    trace/      every move of a core for a while; the requests of an application, and which stage makes their tail
    watch.py    asking an iokernel for its statistics
    bench.py    benchmarks, their list, their reports (benchpage.py: as one page)
    load.py     open-loop load and latency of any server
    outputs.py  files that a command is to write when it has measured
    config.py   flags for compiling C against corelane

A subcommand is a module with add_arguments(parser) and run(options) -> exit code, imported only when it is called, so
that `corelane --help` starts in the time of Python itself (tests/cli/test_main.py). Its IMPORTS are what run() is going
to import: they are imported while Ctrl-C still ends the process. In run() it is a KeyboardInterrupt, unless the module
says ENDS_AT_ONCE. SIGTERM ends the process at once, unless the module deals with it or says UNWINDS: then it is an
exception, too.

Exit codes: 0 done; 1 it could not be done, or the answer is no; 2 the command line was wrong. Results go to stdout,
progress and errors to stderr. Every subcommand takes --json and then prints one JSON document on stdout.
"""
