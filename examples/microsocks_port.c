/* The process around microsocks on corelane: a runtime, and on it the program's `main`, renamed, as a uthread.
 *
 *   python examples/microsocks_port.py build     fetches and edits the source, compiles it with this file
 *   build/microsocks /run/corelane.sock [options of microsocks]
 *
 * The program's threads are uthreads, and its sockets stream sockets of libos. Its log and its look-ups of names are
 * Linux'. */
#include <corelane/libos/libos.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int microsocks(int argc, char **argv);

struct cl_runtime *runtime;

static struct {
    int argc;
    char **argv;
    int code;
} program;

static void run(void *arg)
{
    (void)arg;
    program.code = microsocks(program.argc, program.argv);
    kill(getpid(), SIGTERM);
}

static void on_event(void *arg, int event, const char *text)
{
    (void)arg;
    (void)event;
    fprintf(stderr, "microsocks: %s\n", text);
}

int main(int argc, char **argv)
{
    struct cl_runtime_config config = {
        .name = "microsocks", .kthreads = 2, .stack_bytes = 262144 /* for getaddrinfo */, .on_event = on_event};
    char err[256] = "";
    sigset_t ends;
    int number;

    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: microsocks SOCKET [OPTION]..., as /run/corelane.sock -p 1080\n");
        return 2;
    }
    config.socket_path = argv[1];
    argv[1] = argv[0];
    program.argc = argc - 1;
    program.argv = argv + 1;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before the kthreads start, so that they inherit it */
    if (cl_runtime_new(&config, &runtime, err) < 0 || cl_runtime_start(runtime, err) < 0 ||
        cl_runtime_spawn(runtime, run, NULL) < 0) {
        fprintf(stderr, "microsocks: %s\n", err);
        return 1;
    }
    sigwait(&ends, &number);
    cl_runtime_stop(runtime, 1000000000);
    cl_runtime_delete(runtime);
    return program.code;
}
