/* See control.h. The client end. */
#include "control.h"

#include "memory.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int CL_PRINTF(3, 4) fail(char *err, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(err, CL_CONTROL_ERR_BYTES, fmt, args);
    va_end(args);
    return -code;
}

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int cl_control_connect(const char *path, int timeout_ms, char *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (!path || !*path || strlen(path) >= sizeof addr.sun_path)
        return fail(err, ENAMETOOLONG, "socket path must have 1 to %zu bytes", sizeof addr.sun_path - 1);
    strcpy(addr.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(err, errno, "cannot make a unix socket: %s", strerror(errno));
    /* connect() of a unix socket blocks while the listener's backlog is full, for SO_SNDTIMEO at most. */
    struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    if (timeout_ms > 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    int rc;
    do
        rc = connect(fd, (struct sockaddr *)&addr, sizeof addr);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        return fd;
    int code = errno;
    close(fd);
    if (code == ENOENT || code == ECONNREFUSED)
        return fail(err, code, "no iokernel listens on %s: start one with `corelane up`", path);
    if (code == EACCES)
        return fail(err, code,
                    "refused by the iokernel: not allowed to connect to %s: its owner allows users by iokernel.users "
                    "in the configuration; or start one of your own with `corelane up`",
                    path);
    if (code == EAGAIN)
        return fail(err, ETIMEDOUT, "the iokernel on %s accepts no connection within %d ms: is it stopped?", path,
                    timeout_ms);
    return fail(err, code, "cannot connect to %s: %s", path, strerror(code));
}

static int send_all(int fd, const void *data, size_t n, char *err)
{
    const char *p = data;
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return fail(err, errno == EAGAIN ? ETIMEDOUT : errno, "cannot send to the iokernel: %s", strerror(errno));
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* Wait for readability until the deadline. */
static int wait_readable(int fd, int64_t deadline_ms, char *err)
{
    for (;;) {
        int64_t left = deadline_ms - now_ms();
        struct pollfd p = {fd, POLLIN, 0};
        int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return 0;
        if (n == 0)
            return fail(err, ETIMEDOUT, "the iokernel does not answer in time: is it stopped?");
        if (errno != EINTR)
            return fail(err, errno, "poll: %s", strerror(errno));
    }
}

static int receive_all(int fd, void *to, size_t n, int *fds, unsigned max_fds, unsigned *n_fds, int64_t deadline_ms,
                       char *err)
{
    char *p = to;
    while (n) {
        int rc = wait_readable(fd, deadline_ms, err);
        if (rc < 0)
            return rc;
        int64_t got = cl_fds_receive(fd, p, n, MSG_DONTWAIT, fds, max_fds, n_fds);
        if (got == -EAGAIN || got == -EINTR)
            continue;
        if (got < 0)
            return fail(err, (int)-got, "cannot receive from the iokernel: %s", strerror((int)-got));
        if (got == 0)
            return fail(err, ECONNRESET, "the iokernel closed the connection without an answer");
        p += got;
        n -= (size_t)got;
    }
    return 0;
}

/* Read a header and check it. `most`: the longest message of its type that the caller can take. */
static int receive_header(int fd, struct cl_control_header *h, size_t most, int *fds, unsigned max_fds, unsigned *n_fds,
                          int64_t deadline_ms, char *err)
{
    int rc = receive_all(fd, h, sizeof *h, fds, max_fds, n_fds, deadline_ms, err);
    if (rc < 0)
        return rc;
    if (h->magic != CL_CONTROL_MAGIC)
        return fail(err, EPROTO, "what listens on this socket is not a corelane iokernel");
    /* A refusal reads the same in all versions, so that it can say that the version is the reason. */
    if (h->version != CL_CONTROL_VERSION && h->type != CL_CONTROL_REFUSE)
        return fail(err, EPROTO, "the iokernel speaks control protocol %u, this program %u: use the same corelane",
                    h->version, CL_CONTROL_VERSION);
    if (h->bytes < sizeof *h || h->bytes > most)
        return fail(err, EPROTO, "the iokernel sent a message of %u bytes and type %u", h->bytes, h->type);
    return 0;
}

/* Read the rest of a REFUSE message and turn it into an error. */
static int refused(int fd, const struct cl_control_header *h, int64_t deadline_ms, char *err)
{
    struct cl_control_refuse r = {.header = *h};
    unsigned none = 0;
    if (h->bytes != sizeof r)
        return fail(err, EPROTO, "the iokernel sent a refusal of %u bytes", h->bytes);
    int rc = receive_all(fd, (char *)&r + sizeof *h, sizeof r - sizeof *h, NULL, 0, &none, deadline_ms, err);
    if (rc < 0)
        return rc;
    r.text[sizeof r.text - 1] = 0;
    int code = r.code > 0 && r.code < 4096 ? (int)r.code : ECONNREFUSED;
    return fail(err, code, "refused by the iokernel: %s", r.text);
}

static int receive_accept(int fd, struct cl_control_accept *accept, int *fds, int64_t deadline_ms, char *err,
                          unsigned *n_fds)
{
    struct cl_control_header h;
    int rc = receive_header(fd, &h, sizeof *accept, fds, CL_CONTROL_FDS, n_fds, deadline_ms, err);
    if (rc < 0)
        return rc;
    if (h.type == CL_CONTROL_REFUSE)
        return refused(fd, &h, deadline_ms, err);
    if (h.type != CL_CONTROL_ACCEPT || h.bytes != sizeof *accept)
        return fail(err, EPROTO, "the iokernel answered with type %u of %u bytes", h.type, h.bytes);
    accept->header = h;
    rc = receive_all(fd, (char *)accept + sizeof h, sizeof *accept - sizeof h, fds, CL_CONTROL_FDS, n_fds, deadline_ms,
                     err);
    if (rc < 0)
        return rc;
    accept->note[sizeof accept->note - 1] = 0;
    if (*n_fds != CL_CONTROL_FDS)
        return fail(err, EPROTO, "the iokernel accepted with %u descriptors instead of %u", *n_fds, CL_CONTROL_FDS);
    struct cl_arena_layout expect = accept->layout;
    if (cl_arena_layout_init(&expect) < 0 || memcmp(&expect, &accept->layout, sizeof expect))
        return fail(err, EPROTO, "the iokernel accepted with an impossible arena layout");
    return 0;
}

int cl_control_attach(int fd, struct cl_control_hello *hello, struct cl_control_accept *accept, int *fds,
                      int timeout_ms, char *err)
{
    hello->header =
        (struct cl_control_header){CL_CONTROL_MAGIC, CL_CONTROL_VERSION, CL_CONTROL_HELLO, sizeof *hello, 0};
    int rc = send_all(fd, hello, sizeof *hello, err);
    if (rc < 0 && rc != -EPIPE) /* EPIPE: refused before it was read; the reason is there to be read */
        return rc;
    unsigned n_fds = 0;
    rc = receive_accept(fd, accept, fds, now_ms() + timeout_ms, err, &n_fds);
    if (rc < 0)
        for (unsigned i = 0; i < n_fds; i++)
            close(fds[i]);
    return rc;
}

/* A question and its answer's header. */
struct exchange {
    struct cl_control_header header; /* of the answer, once there is one */
    size_t most;                     /* bytes of the longest answer */
    int64_t deadline_ms;
    unsigned n_fds; /* that came with it */
};

/* Send a message, whose header this fills in, and read the header of its answer; a descriptor may come with it if fd is
 * not NULL. Refused: -code, err its text. */
static int question(int sock, uint16_t type, void *message, size_t bytes, struct exchange *x, int *fd, char *err)
{
    struct cl_control_header h = {CL_CONTROL_MAGIC, CL_CONTROL_VERSION, type, (uint32_t)bytes, 0};
    memcpy(message, &h, sizeof h);
    int rc = send_all(sock, message, bytes, err);
    if (rc < 0 && rc != -EPIPE) /* EPIPE: refused before it was read; the reason is there to be read */
        return rc;
    rc = receive_header(sock, &x->header, x->most, fd, fd != NULL, &x->n_fds, x->deadline_ms, err);
    return rc == 0 && x->header.type == CL_CONTROL_REFUSE ? refused(sock, &x->header, x->deadline_ms, err) : rc;
}

static int unexpected(const struct exchange *x, char *err)
{
    return fail(err, EPROTO, "the iokernel answered with type %u of %u bytes", x->header.type, x->header.bytes);
}

int cl_control_kthreads(int fd, struct cl_control_kthreads *kthreads, int timeout_ms, char *err)
{
    struct exchange x = {.most = sizeof(struct cl_control_refuse), .deadline_ms = now_ms() + timeout_ms};
    int rc = question(fd, CL_CONTROL_KTHREADS, kthreads, sizeof *kthreads, &x, NULL, err);
    if (rc == 0 && (x.header.type != CL_CONTROL_KTHREADS_OK || x.header.bytes != sizeof x.header))
        rc = unexpected(&x, err);
    return rc;
}

int cl_control_state(int fd, struct cl_control_state *state, uint64_t *delivered, int timeout_ms, char *err)
{
    struct cl_control_state_ok answer;
    struct exchange x = {.most = sizeof(struct cl_control_refuse), .deadline_ms = now_ms() + timeout_ms};
    unsigned none = 0;
    int rc = question(fd, CL_CONTROL_STATE, state, sizeof *state, &x, NULL, err);
    if (rc < 0)
        return rc;
    if (x.header.type != CL_CONTROL_STATE_OK || x.header.bytes != sizeof answer)
        return unexpected(&x, err);
    rc = receive_all(fd, (char *)&answer + sizeof x.header, sizeof answer - sizeof x.header, NULL, 0, &none,
                     x.deadline_ms, err);
    if (rc < 0)
        return rc;
    *delivered = answer.delivered;
    return (int)cl_min(answer.others, (uint32_t)CL_SHM_MAX_MEMBERS);
}

int cl_control_promise(int fd, struct cl_control_promise *ask, struct cl_control_promise_ok *answer, int timeout_ms,
                       char *err)
{
    struct exchange x = {.most = sizeof *answer, .deadline_ms = now_ms() + timeout_ms};
    unsigned none = 0;
    int rc = question(fd, CL_CONTROL_PROMISE, ask, sizeof *ask, &x, NULL, err);
    if (rc < 0)
        return rc;
    if (x.header.type != CL_CONTROL_PROMISE_OK || x.header.bytes != sizeof *answer)
        return unexpected(&x, err);
    answer->header = x.header;
    rc = receive_all(fd, (char *)answer + sizeof x.header, sizeof *answer - sizeof x.header, NULL, 0, &none,
                     x.deadline_ms, err);
    answer->answer.text[sizeof answer->answer.text - 1] = 0;
    return rc;
}

/* The text that follows a header. Returns its length. */
static int receive_text(int fd, const struct cl_control_header *h, char **json, int64_t deadline_ms, char *err)
{
    unsigned none = 0;
    size_t n = h->bytes - sizeof *h;
    char *text = malloc(n + 1);
    if (!text)
        return fail(err, ENOMEM, "no memory for an answer of %zu bytes", n);
    int rc = receive_all(fd, text, n, NULL, 0, &none, deadline_ms, err);
    if (rc < 0) {
        free(text);
        return rc;
    }
    text[n] = 0;
    *json = text;
    return (int)n;
}

int cl_control_stats(int fd, char **json, int timeout_ms, char *err)
{
    struct cl_control_header message;
    struct exchange x = {.most = CL_CONTROL_MAX_REPLY, .deadline_ms = now_ms() + timeout_ms};
    int rc = question(fd, CL_CONTROL_STATS, &message, sizeof message, &x, NULL, err);
    if (rc < 0)
        return rc;
    if (x.header.type != CL_CONTROL_STATS_REPLY)
        return unexpected(&x, err);
    return receive_text(fd, &x.header, json, x.deadline_ms, err);
}

int cl_control_area(int fd, struct cl_control_area *ask, char **json, int *area, int timeout_ms, char *err)
{
    struct exchange x = {.most = CL_CONTROL_MAX_REPLY, .deadline_ms = now_ms() + timeout_ms};
    *area = -1;
    int rc = question(fd, CL_CONTROL_AREA, ask, sizeof *ask, &x, area, err);
    if (rc == 0 && (x.header.type != CL_CONTROL_AREA_OK || (ask->op == CL_CONTROL_AREA_OPEN) != (x.n_fds == 1)))
        rc = fail(err, EPROTO, "the iokernel answered with type %u and %u descriptors", x.header.type, x.n_fds);
    else if (rc == 0)
        rc = receive_text(fd, &x.header, json, x.deadline_ms, err);
    if (rc < 0 && x.n_fds)
        close(*area);
    if (rc < 0)
        *area = -1;
    return rc;
}

int cl_control_moves(int fd, struct cl_control_moves *ask, struct cl_control_moves_ok *answer, char **entries,
                     int timeout_ms, char *err)
{
    struct exchange x = {.most = CL_CONTROL_MAX_REPLY, .deadline_ms = now_ms() + timeout_ms};
    unsigned none = 0;
    *entries = NULL;
    int rc = question(fd, CL_CONTROL_MOVES, ask, sizeof *ask, &x, NULL, err);
    if (rc < 0)
        return rc;
    if (x.header.type != CL_CONTROL_MOVES_OK || x.header.bytes < sizeof *answer)
        return unexpected(&x, err);
    answer->header = x.header;
    rc = receive_all(fd, (char *)answer + sizeof x.header, sizeof *answer - sizeof x.header, NULL, 0, &none,
                     x.deadline_ms, err);
    if (rc < 0)
        return rc;
    if (x.header.bytes - sizeof *answer != (uint64_t)answer->n * answer->entry_bytes)
        return fail(err, EPROTO, "the iokernel sent %u bytes for %u entries of %u", x.header.bytes, answer->n,
                    answer->entry_bytes);
    x.header.bytes -= sizeof *answer - sizeof x.header; /* the entries, as what follows a header */
    rc = receive_text(fd, &x.header, entries, x.deadline_ms, err);
    return rc < 0 ? rc : 0;
}

int cl_control_trace(int fd, struct cl_control_trace *ask, char **json, int *segment, int timeout_ms, char *err)
{
    struct exchange x = {.most = CL_CONTROL_MAX_REPLY, .deadline_ms = now_ms() + timeout_ms};
    *segment = -1;
    int rc = question(fd, CL_CONTROL_TRACE, ask, sizeof *ask, &x, segment, err);
    if (rc == 0 && x.header.type != CL_CONTROL_TRACE_OK)
        rc = unexpected(&x, err);
    else if (rc == 0)
        rc = receive_text(fd, &x.header, json, x.deadline_ms, err);
    if (rc < 0 && x.n_fds)
        close(*segment);
    if (rc < 0 || !x.n_fds)
        *segment = -1;
    return rc;
}

int cl_control_policy(int fd, const char *spec, const char *params, char *text, int timeout_ms, char *err)
{
    struct cl_control_policy message = {0};
    struct cl_control_policy_ok answer;
    struct exchange x = {.most = sizeof(struct cl_control_refuse), .deadline_ms = now_ms() + timeout_ms};
    unsigned none = 0;
    if (strlen(spec) >= sizeof message.spec || strlen(params) >= sizeof message.params)
        return fail(err, ENAMETOOLONG, "the policy's name has at most %zu bytes, its settings together %zu",
                    sizeof message.spec - 1, sizeof message.params - 1);
    memcpy(message.spec, spec, strlen(spec));
    memcpy(message.params, params, strlen(params));
    int rc = question(fd, CL_CONTROL_POLICY, &message, sizeof message, &x, NULL, err);
    if (rc < 0)
        return rc;
    if (x.header.type != CL_CONTROL_POLICY_OK || x.header.bytes != sizeof answer)
        return unexpected(&x, err);
    rc = receive_all(fd, (char *)&answer + sizeof x.header, sizeof answer - sizeof x.header, NULL, 0, &none,
                     x.deadline_ms, err);
    if (rc < 0)
        return rc;
    memcpy(text, answer.text, sizeof answer.text);
    text[sizeof answer.text - 1] = 0;
    return 0;
}

void cl_control_free(char *json)
{
    free(json);
}

void cl_control_close(int fd)
{
    close(fd);
}
