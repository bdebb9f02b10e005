/* A program that knows nothing of corelane: stdio on sockets, and calls by libc's rarer names. It prints the results;
 * the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   streams ADDRESS SEQUENCE
 *   streams serve PORT         says to the first who sends a line what it was, and leaves that to exit
 *   (../test_servers.py) */
#include "pairs.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments);
ssize_t __read(int fd, void *data, size_t len);
ssize_t __write(int fd, const void *data, size_t len);
ssize_t __send(int fd, const void *data, size_t len, int flags);
int __close(int fd);
int __connect(int fd, const struct sockaddr *at, socklen_t len);
int __dup2(int fd, int to);
int __fcntl(int fd, int command, ...);
int __poll(struct pollfd *fds, nfds_t n, int ms);
int __select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *t);
FILE *_IO_fdopen(int fd, const char *mode);
int _IO_fclose(FILE *file);

static int said(int fd, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vdprintf(fd, format, arguments);
    va_end(arguments);
    return n;
}

static int said_checked(int fd, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = __vdprintf_chk(fd, 1, format, arguments);
    va_end(arguments);
    return n;
}

static void stdio(void)
{
    char line[64];
    int c, s;
    pair(&c, &s);
    FILE *in = fdopen(s, "r"), *out = fdopen(c, "r+");
    say("fileno", fileno(in) == s && fileno(out) == c);
    say("fprintf", fprintf(out, "%s %d\n", "line", 1));
    say("nothing yet", recv(s, line, sizeof line, MSG_DONTWAIT));
    say("fflush", fflush(out));
    printf("fgets: %s", fgets(line, sizeof line, in));
    say("fputs", fputs("to be read back\n", out) < 0 ? -1 : 0);
    say("fclose", fclose(out));
    printf("fgets: %s", fgets(line, sizeof line, in));
    printf("at the end: %d %d\n", fgets(line, sizeof line, in) == NULL, feof(in) != 0);
    say("fputs into what is for reading", fputs("x", in));
    say("fseek", fseek(in, 0, SEEK_END));
    say("its number is free", fcntl(c, F_GETFD));
    say("fclose", fclose(in));
    say("its number is free", fcntl(s, F_GETFD));
    say("fdopen with a wrong mode", fdopen(socket(AF_INET, SOCK_STREAM, 0), "x") ? 0 : -1);
}

/* Of the other end's, and of what has no other end. */
static void stdio_fails(void)
{
    char data[4];
    int c, s, fresh = socket(AF_INET, SOCK_STREAM, 0);
    pair(&c, &s);
    fcntl(s, F_SETFL, O_NONBLOCK);
    FILE *in = fdopen(s, "r");
    say("nothing has come", (long)fread(data, 1, sizeof data, in));
    printf("%s, an error: %d\n", name_of(errno), ferror(in) != 0);
    clearerr(in);
    say("write", write(c, "abc", 3));
    wait_for(s, POLLIN);
    say("fread", (long)fread(data, 1, 3, in));
    FILE *out = fdopen(fresh, "w");
    signal(SIGPIPE, SIG_IGN);
    say("fputs", fputs("x", out) < 0 ? -1 : 0);
    say("fflush of what is not connected", fflush(out));
    fclose(out);
    fclose(in);
}

static void printed(void)
{
    char data[8192];
    int c, s;
    pair(&c, &s);
    say("dprintf", dprintf(c, "%d+%s;", 1, "a"));
    say("vdprintf", said(c, "%c", 'b'));
    say("__dprintf_chk", __dprintf_chk(c, 1, "%s", "cd"));
    say("__vdprintf_chk", said_checked(c, "%5.2f", 1.5));
    say("recv", recv(s, data, 12, MSG_WAITALL));
    printf("%.12s\n", data);
    say("a long one", dprintf(c, "%6000d", 7));
    say("recv", recv(s, data, 6000, MSG_WAITALL));
    printf("%.3s%.1s\n", data, data + 5999);
    say("of no descriptor", dprintf(1000, "x"));
}

static void with_flags(void)
{
    char a[4] = "", b[4] = "";
    struct iovec out[2] = {{"ab", 2}, {"cd", 2}}, in[2] = {{a, 2}, {b, 4}};
    int c, s;
    pair(&c, &s);
    say("preadv2 of nothing", preadv2(s, in, 2, -1, RWF_NOWAIT));
    say("pwritev2", pwritev2(c, out, 2, -1, 0));
    wait_for(s, POLLIN);
    say("preadv2", preadv2(s, in, 2, -1, 0));
    printf("%.2s %.2s\n", a, b);
    say("pwritev64v2", pwritev64v2(c, out, 1, -1, RWF_NOWAIT));
    wait_for(s, POLLIN);
    say("preadv64v2", preadv64v2(s, in, 1, -1, RWF_NOWAIT));
    say("at a place", preadv2(s, in, 2, 0, 0));
    say("at a place", pwritev2(c, out, 2, 0, 0));
    say("pread", pread(s, a, 1, 0));
    say("pwritev", pwritev(c, out, 1, 0));
    say("with a wrong flag", preadv2(s, in, 2, -1, 1 << 30));
    say("of no pieces", pwritev2(c, out, 0, -1, 0));
}

static void by_other_names(void)
{
    struct sockaddr_in at;
    char data[4];
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0), other = open("/dev/null", O_RDWR);
    say("__connect", __connect(c, (struct sockaddr *)&at, sizeof at));
    int s = say_fd("accept", accept(l, NULL, NULL));
    say("__dup2", __dup2(c, other) == other);
    say("__close", __close(c));
    say("__fcntl", __fcntl(s, F_SETFL, O_NONBLOCK));
    say("__read", __read(s, data, 4));
    say("__write", __write(other, "ab", 2));
    struct pollfd p = {s, POLLIN, 0};
    say("__poll", __poll(&p, 1, 10000));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(s, &in);
    say("__select", __select(s + 1, &in, NULL, NULL, NULL));
    say("__read", __read(s, data, 4));
    say("__send", __send(s, "xyz", 3, MSG_DONTWAIT));
    FILE *file = _IO_fdopen(other, "r");
    printf("fgetc: %c\n", fgetc(file));
    say("_IO_fclose", _IO_fclose(file));
    say("it is closed", __read(other, data, 1));
}

/* sendfile takes from files alone. */
static void from_no_file(void)
{
    int c, s, p[2];
    char data[4];
    pair(&c, &s);
    say("pipe", pipe(p));
    say("write", write(p[1], "abc", 3));
    off64_t at = 0;
    say("sendfile of a pipe", sendfile64(c, p[0], NULL, 3));
    say("at a place", sendfile64(c, p[0], &at, 3));
    say("of a socket", sendfile64(c, s, NULL, 3));
    say("what is in the pipe", read(p[0], data, 4));
    say("write", write(c, "xyz", 3));
    say("into a pipe, of a socket", sendfile64(p[1], s, NULL, 3));
    say("at a place", sendfile64(p[1], s, &at, 3));
    say("into a file, of a socket", sendfile64(fileno(tmpfile()), s, NULL, 3));
    say("what is in the pipe", read(p[0], data, 4));
}

static const struct sequence sequences[] = {{"stdio", stdio},
                                            {"stdio_fails", stdio_fails},
                                            {"printed", printed},
                                            {"with_flags", with_flags},
                                            {"by_other_names", by_other_names},
                                            {"from_no_file", from_no_file},
                                            {NULL, NULL}};

static int serve(const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    char line[64];
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, 8))
        return 1;
    for (;;) {
        int s = accept(l, NULL, NULL);
        FILE *in = s >= 0 ? fdopen(s, "r") : NULL, *out = s >= 0 ? fdopen(dup(s), "w") : NULL;
        if (!in || !out)
            return 1;
        if (fgets(line, sizeof line, in)) {
            fprintf(out, "it was %s", line);
            return 0;
        }
        fclose(in);
        fclose(out);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2]);
    return run_with_address(sequences, argc, argv);
}
