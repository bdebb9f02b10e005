/* A program that knows nothing of corelane: splice between pipes and TCP sockets. It prints the results of its calls;
 * the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   pipes ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>

static char data[1 << 16];

static void say_bytes(int pipe_out)
{
    int n = -1;
    ioctl(pipe_out, FIONREAD, &n);
    printf("in the pipe: %d\n", n);
}

static void out_of_a_socket(void)
{
    int c, s, p[2];
    char back[64] = "";
    if (pipe(p))
        return;
    pair(&c, &s);
    fcntl(s, F_SETFL, O_NONBLOCK); /* SPLICE_F_NONBLOCK is of the pipe */
    say("nothing there", splice(s, NULL, p[1], NULL, 100, 0));
    fcntl(s, F_SETFL, 0);
    say("write", write(c, "hello", 5));
    wait_for(s, POLLIN);
    say("of no bytes", splice(s, NULL, p[1], NULL, 0, 0));
    say("some", splice(s, NULL, p[1], NULL, 2, 0));
    say_bytes(p[0]);
    say("the rest", splice(s, NULL, p[1], NULL, 100, SPLICE_F_MOVE));
    say("read", read(p[0], back, sizeof back));
    printf("%s\n", back);
    say("shutdown", shutdown(c, SHUT_WR));
    wait_for(s, POLLRDHUP);
    say("at the end", splice(s, NULL, p[1], NULL, 100, 0));
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    while (write(p[1], data, sizeof data) > 0)
        ;
    say("into a full pipe", splice(s, NULL, p[1], NULL, 100, SPLICE_F_NONBLOCK));
}

static void into_a_socket(void)
{
    int c, s, p[2];
    char back[64] = "";
    if (pipe(p))
        return;
    pair(&c, &s);
    say("nothing there", splice(p[0], NULL, c, NULL, 100, SPLICE_F_NONBLOCK));
    say("write", write(p[1], "hello", 5));
    say("some", splice(p[0], NULL, c, NULL, 2, SPLICE_F_MORE));
    say_bytes(p[0]);
    say("the rest", splice(p[0], NULL, c, NULL, 100, 0));
    for (int n = 0, i = 0; n < 5 && i < 10000; i++, poll(NULL, 0, i > 100))
        ioctl(s, FIONREAD, &n);
    say("read", read(s, back, sizeof back));
    printf("%s\n", back);
    say("write", write(p[1], "more", 4));
    close(p[1]);
    say("with no writer", splice(p[0], NULL, c, NULL, 100, 0));
    say("at the end", splice(p[0], NULL, c, NULL, 100, 0));
}

static void wrong(void)
{
    int c, s, p[2], fresh = socket(AF_INET, SOCK_STREAM, 0);
    off64_t at = 0;
    if (pipe(p))
        return;
    pair(&c, &s);
    say("between sockets", splice(s, NULL, c, NULL, 10, 0));
    say("with a place", splice(s, &at, p[1], NULL, 10, 0));
    say("with a place", splice(p[0], NULL, c, &at, 10, 0));
    say("with a place in the pipe", splice(p[0], &at, c, NULL, 10, 0));
    say("with a place in the pipe", splice(s, NULL, p[1], &at, 10, 0));
    say("unknown flags", splice(s, NULL, p[1], NULL, 10, 0x100));
    say("of a fresh one", splice(fresh, NULL, p[1], NULL, 10, 0));
    say("write", write(p[1], "x", 1));
    signal(SIGPIPE, SIG_IGN);
    say("to a fresh one", splice(p[0], NULL, fresh, NULL, 10, 0));
    say("shutdown", shutdown(c, SHUT_WR));
    say("to one that is shut", splice(p[0], NULL, c, NULL, 10, 0));
}

/* All of a stream through a pipe, and back. */
static void much(void)
{
    int c, s, p[2];
    long in = 0, out = 0, back = 0, sent = 0;
    if (pipe(p))
        return;
    pair(&c, &s);
    fcntl(c, F_SETFL, O_NONBLOCK);
    fcntl(s, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 1000000 && back < 300000; i++) {
        long n = sent < 300000 ? write(c, data, 300000 - sent > 5000 ? 5000 : (size_t)(300000 - sent)) : 0;
        sent += n > 0 ? n : 0;
        n = splice(s, NULL, p[1], NULL, 10000, SPLICE_F_NONBLOCK);
        in += n > 0 ? n : 0;
        n = splice(p[0], NULL, s, NULL, 10000, SPLICE_F_NONBLOCK);
        out += n > 0 ? n : 0;
        n = read(c, data, sizeof data);
        back += n > 0 ? n : 0;
        struct pollfd fds[2] = {{s, POLLIN, 0}, {c, POLLIN, 0}};
        if (n <= 0)
            poll(fds, 2, 1);
    }
    printf("%ld %ld %ld %ld\n", sent, in, out, back);
}

/* Datagrams have none here, with a word: it is not among those that are compared. */
static void of_datagrams(void)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    int s = socket(AF_INET, SOCK_DGRAM, 0), c = socket(AF_INET, SOCK_DGRAM, 0), p[2];
    if (pipe(p))
        return;
    say("bind", bind(s, (struct sockaddr *)&at, sizeof at));
    getsockname(s, (struct sockaddr *)&at, &len);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    say("write", write(p[1], "x", 1));
    say("into", splice(p[0], NULL, c, NULL, 1, 0));
    say("out of", splice(s, NULL, p[1], NULL, 1, 0));
    say_bytes(p[0]);
}

static const struct sequence sequences[] = {{"out_of_a_socket", out_of_a_socket},
                                            {"into_a_socket", into_a_socket},
                                            {"wrong", wrong},
                                            {"much", much},
                                            {"datagrams", of_datagrams},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}
