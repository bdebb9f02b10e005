/* read and write in all their forms. */
#include "datagrams.h"
#include "kthreads.h"
#include "linux.h"
#include "memory.h"
#include "waits.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_MOST 256   /* times that somebody else works on a connection that is ready, and is helped to get done */
#define LOOK_BYTES 1024 /* of the memory for a read, at least, until that is filled: most bring less than fits */
#define PAGE_BYTES 4096
#define LINUX_PIECE 32768 /* that Linux takes from a program at once (net/core/sock.c: SKB_FRAG_PAGE_ORDER) */

struct transfer {
    struct cl_stream *stream;
    const struct iovec *vec;
    int64_t n;
    bool out, peek;
    bool more; /* MSG_MORE */
    bool own;  /* the memory is ours, and need not be looked at */
    int64_t rc;
};
_Static_assert(IOV_MAX <= CL_STREAM_VECTORS, "a call takes all pieces that Linux takes");
_Static_assert(sizeof(struct iovec) == sizeof(struct cl_iovec) &&
                   offsetof(struct iovec, iov_len) == offsetof(struct cl_iovec, len),
               "one is the other");

static void transfer_now(void *arg)
{
    struct transfer *t = arg;
    const struct cl_iovec *vec = (const struct cl_iovec *)t->vec;
    if (t->out)
        t->rc = (t->more ? cl_stream_writev_more : cl_stream_writev)(t->stream, vec, t->n, 0);
    else if (t->peek)
        t->rc = t->n ? cl_stream_peek(t->stream, vec->base, vec->len, 0) : 0;
    else
        t->rc = cl_stream_readv(t->stream, vec, t->n, 0);
}

static bool has_nothing(const struct transfer *t)
{
    return !t->out && !cl_stream_ready(t->stream) && cl_posix_keeps();
}

/* As much as goes without waiting. -EAGAIN: nothing does. Who keeps a kthread turns it when he waits, and need not look
 * closer at what nobody has told of: servers read until there is no more. */
static int64_t transfer_some(struct transfer *t)
{
    if (has_nothing(t))
        return -EAGAIN;
    for (unsigned i = 0;; i++) {
        int rc = t->out ? cl_posix_run_sender(transfer_now, t, t->stream) : cl_posix_run(transfer_now, t);
        if (rc)
            return rc == -EDEADLK ? -EAGAIN : rc; /* in a signal's handler, in the middle of another call */
        bool ready = t->rc == -EAGAIN && cl_stream_ready(t->stream) & (t->out ? CL_POLL_OUT : CL_POLL_IN);
        if (!ready || i == BUSY_MOST)
            return t->rc;
        cl_posix_turn_all();
    }
}

/* The first `bytes` of a vector. Into `out`, which is as long. Returns how many pieces those are. */
static int64_t head(const struct iovec *vec, int64_t n, int64_t bytes, struct iovec *out)
{
    int64_t i = 0;
    for (; i < n && bytes > 0; i++) {
        out[i] = (struct iovec){vec[i].iov_base, (size_t)cl_min(bytes, (int64_t)vec[i].iov_len)};
        bytes -= (int64_t)out[i].iov_len;
    }
    return i;
}

static CL_NOINLINE int64_t transfer_head(struct transfer *t, int64_t bytes)
{
    struct iovec first[CL_STREAM_VECTORS];
    struct transfer part = *t;
    part.vec = first;
    part.n = head(t->vec, t->n, bytes, first);
    return transfer_some(&part);
}

/* A read into memory of which only the first `room` bytes are there: what has come stays if it is more. */
static CL_NOINLINE int64_t read_less(struct cl_posix_socket *s, struct transfer *t, int64_t room)
{
    char first;
    struct cl_tcp_info info;
    struct transfer look = {.stream = t->stream, .vec = &(struct iovec){&first, sizeof first}, .n = 1, .peek = true};
    int64_t rc = transfer_some(&look);
    if (rc <= 0)
        return rc;
    return cl_posix_socket_info(s, &info) || info.to_read > room ? -EFAULT : transfer_head(t, room);
}

/* Into one piece, whose first `looked` bytes are there: into the rest if those are filled. */
static int64_t read_much(struct transfer *t, int64_t looked)
{
    struct iovec part = {t->vec->iov_base, (size_t)looked};
    struct transfer first = *t;
    first.vec = &part;
    int64_t rc = transfer_some(&first);
    if (rc < looked)
        return rc;
    part = (struct iovec){(char *)t->vec->iov_base + looked, t->vec->iov_len - (size_t)looked};
    part.iov_len = cl_posix_writable(part.iov_base, part.iov_len);
    int64_t more = part.iov_len ? transfer_some(&first) : 0;
    return rc + cl_max(more, (int64_t)0);
}

/* To the end of a page, or of the next one. */
static int64_t first_look(const void *p)
{
    int64_t left = PAGE_BYTES - (int64_t)((uintptr_t)p % PAGE_BYTES);
    return left < LOOK_BYTES ? left + PAGE_BYTES : left;
}

/* transfer_some; of a read, into memory that may not be there. */
static int64_t transfer_safely(struct cl_posix_socket *s, struct transfer *t)
{
    if (t->out || t->own || has_nothing(t))
        return transfer_some(t);
    int64_t sum = cl_linux_bytes(t->vec, t->n);
    int64_t looked = t->n == 1 && !t->peek ? cl_min(sum, first_look(t->vec->iov_base)) : sum;
    int64_t room = cl_posix_pieces_writable(t->vec, t->n, looked);
    if (cl_unlikely(room < looked))
        return read_less(s, t, room);
    return looked < sum ? read_much(t, looked) : transfer_some(t);
}

/* Why it is over is told once; then it is just over. */
static int64_t told_once(struct cl_posix_socket *s, const struct transfer *t, int64_t rc)
{
    if (rc >= 0 || !(cl_stream_ready(t->stream) & CL_POLL_ERROR))
        return rc;
    if (!__atomic_exchange_n(&s->error_taken, 1, __ATOMIC_RELAXED))
        return rc;
    return t->out ? -EPIPE : 0;
}

/* What is left of a vector when `done` bytes of it are. Into `left`, which is as long. */
static int64_t skip(const struct iovec *vec, int64_t n, int64_t done, struct iovec *left)
{
    int64_t out = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t part = cl_min(done, (int64_t)vec[i].iov_len);
        done -= part;
        if ((int64_t)vec[i].iov_len > part)
            left[out++] = (struct iovec){(char *)vec[i].iov_base + part, vec[i].iov_len - (size_t)part};
    }
    return out;
}

/* A read of nothing: it waits until something could be read, and fails as if something were. */
static int64_t read_nothing(struct cl_posix_socket *s, const struct transfer *t, bool waits)
{
    char first;
    struct transfer look = {.stream = t->stream, .vec = &(struct iovec){&first, sizeof first}, .n = 1, .peek = true};
    int64_t rc = transfer_some(&look);
    if (rc != -EAGAIN)
        return cl_min(rc, (int64_t)0);
    return waits ? cl_posix_wait(s, EPOLLIN | EPOLLRDHUP, cl_posix_deadline(s->receive_ns)) : -EAGAIN;
}

/* Of a connection of which that side was shut, and the stream does not know: what is left is read, and why it is over
 * told before that it is. */
static bool is_shut_early(const struct cl_posix_socket *s, bool out)
{
    uint32_t early = cl_load_relaxed(&s->shut_early);
    return cl_unlikely(early) && early & (out ? CL_STREAM_WRITE : CL_STREAM_READ);
}

static int64_t transfer_early(struct cl_posix_socket *s, struct transfer *t)
{
    if (t->out) {
        int error = cl_stream_error(t->stream);
        return error && error != -EINPROGRESS ? error : -EPIPE;
    }
    int64_t rc = cl_linux_bytes(t->vec, t->n) ? transfer_safely(s, t) : read_nothing(s, t, false);
    return rc == -EAGAIN ? 0 : rc;
}

/* Go on after a first try, which has brought `done` bytes or -errno, until all of it is done, or there is an end, an
 * error, or the time is over. */
static CL_NOINLINE int64_t transfer_rest(struct cl_posix_socket *s, struct transfer *t, int64_t rc, int64_t whole)
{
    struct iovec left[CL_STREAM_VECTORS];
    const struct iovec *vec = t->vec;
    int64_t n = t->n, done = cl_max(rc, (int64_t)0);
    uint64_t deadline_ns = cl_posix_deadline(t->out ? s->send_ns : s->receive_ns);
    while (rc && done < whole) {
        if (rc == -EAGAIN && (rc = cl_posix_wait(s, t->out ? EPOLLOUT : EPOLLIN | EPOLLRDHUP, deadline_ns)))
            break;
        t->vec = left;
        t->n = skip(vec, n, done, left);
        bool shut = is_shut_early(s, t->out); /* by another thread, perhaps, while this one waited */
        rc = shut ? transfer_early(s, t) : transfer_safely(s, t);
        done += cl_max(rc, (int64_t)0);
        if (shut || (rc < 0 && rc != -EAGAIN))
            break;
    }
    return done ? done : rc;
}

static bool is_connected(const struct cl_posix_socket *s)
{
    return cl_load_acquire(&s->state) > CL_POSIX_LISTENS;
}

/* In the order of net/ipv4/tcp.c: tcp_sendmsg, tcp_recvmsg. */
static int64_t not_connected(struct cl_posix_socket *s, bool out)
{
    bool listens = cl_load_acquire(&s->state) == CL_POSIX_LISTENS;
    int left = listens && !out ? 0 : cl_posix_socket_left(s);
    if (left)
        return -left;
    if (out)
        return -EPIPE;
    return !listens && cl_load_relaxed(&s->shut_early) & CL_STREAM_READ ? 0 : -ENOTCONN;
}

/* Nothing is written; but that it could not be is told (net/ipv4/tcp.c). */
static int64_t write_nothing(const struct cl_posix_socket *s, const struct transfer *t)
{
    int error = cl_stream_error(t->stream);
    if (error && error != -EINPROGRESS)
        return error;
    bool shut = cl_load_relaxed(&s->sides_shut) & CL_STREAM_WRITE;
    return shut || cl_stream_ready(t->stream) & CL_STREAM_READY_OVER ? -EPIPE : 0;
}

/* What comes for it is seen to at the kthread whose thread polls it. Two calls at one time may leave the hint wrong,
 * until another thread polls it. */
static void go_home(struct cl_posix_socket *s, struct cl_stream *stream)
{
    uint32_t poller = cl_load_relaxed(&s->poller);
    if (cl_likely(poller == cl_load_relaxed(&s->home)))
        return;
    cl_store_relaxed(&s->home, poller);
    (void)cl_stream_set_home(stream, (int)poller - 1);
}

/* Of a call that looks at what it does not take, and wants all of it. */
struct look {
    struct cl_posix_socket *s;
    struct transfer *t;
    int64_t seen, whole;
};

static bool sees_too_little(void *arg)
{
    struct look *l = arg;
    bool over = cl_posix_socket_ready(l->s) & (CL_STREAM_READY_LAST | CL_STREAM_READY_OVER | CL_POLL_ERROR);
    l->seen = cl_max(l->seen, transfer_safely(l->s, l->t)); /* behind that: what has come by the end is seen */
    return l->seen < l->whole && !over;
}

/* `seen` of it are there. They stay where they are, so that the socket is ready: each time that more come it looks
 * again (net/ipv4/tcp.c: tcp_recvmsg_locked). */
static int64_t see_all(struct cl_posix_socket *s, struct transfer *t, int64_t seen, int64_t whole)
{
    struct look l = {s, t, seen, whole};
    (void)cl_posix_wait_while(s, EPOLLIN | EPOLLRDHUP | EPOLLET, cl_posix_deadline(s->receive_ns), sees_too_little, &l);
    return l.seen;
}

/* A write from memory of which not all is there: as much as Linux takes at once is written, or nothing. */
static CL_NOINLINE int64_t write_less(struct cl_posix_socket *s, struct transfer *t, int64_t there, bool waits)
{
    int64_t wrong = write_nothing(s, t);
    if (wrong || there >= LINUX_PIECE)
        return wrong ? wrong : transfer_head(t, there);
    return waits || cl_stream_ready(t->stream) & CL_POLL_OUT ? -EFAULT : -EAGAIN;
}

static int64_t transfer(struct cl_posix_socket *s, struct transfer *t, int flags)
{
    int64_t rc;
    if (cl_unlikely(!is_connected(s) || !(t->stream = cl_load_acquire(&s->stream)))) /* another thread may end it now */
        return not_connected(s, t->out);
    go_home(s, t->stream);
    if (is_shut_early(s, t->out))
        return told_once(s, t, transfer_early(s, t));
    int64_t sum = cl_linux_bytes(t->vec, t->n);
    bool waits = !cl_load_relaxed(&s->non_blocking) && !(flags & MSG_DONTWAIT);
    /* A read is content with some. */
    int64_t whole = t->out || (flags & MSG_WAITALL && !t->peek) ? sum : 1;
    if (sum == 0)
        return told_once(s, t, t->out ? write_nothing(s, t) : read_nothing(s, t, waits));
    int64_t there = t->out && !t->own ? cl_posix_pieces_readable(t->vec, t->n, sum) : sum;
    if (cl_unlikely(there < sum))
        return told_once(s, t, write_less(s, t, there, waits));
    rc = transfer_safely(s, t);
    if (waits && (rc == -EAGAIN || (rc > 0 && rc < whole)))
        rc = transfer_rest(s, t, rc, whole);
    if (t->peek && waits && flags & MSG_WAITALL && rc > 0 && rc < sum)
        rc = see_all(s, t, rc, sum);
    if (t->out && rc > 0 && !cl_posix_gathers())
        cl_posix_socket_sent(s);
    return told_once(s, t, rc);
}

/* Into one piece, and from there into those of the caller; by MSG_TRUNC into none (net/ipv4/tcp.c:
 * tcp_recvmsg_locked), who need not be there. */
static int64_t read_by_one_piece(struct cl_posix_socket *s, const struct transfer *t, int flags)
{
    int64_t room = cl_min(cl_linux_bytes(t->vec, t->n), (int64_t)CL_STREAM_BUFFER_MOST), at = 0;
    char *data = malloc((size_t)room + 1);
    struct iovec one = {data, (size_t)room};
    struct transfer whole = {.vec = &one, .n = 1, .peek = t->peek, .own = true};
    if (!data)
        return -ENOMEM;
    int64_t rc = transfer(s, &whole, flags);
    if (rc > 0 && !(flags & MSG_TRUNC) && cl_posix_pieces_writable(t->vec, t->n, rc) < rc)
        rc = -EFAULT;
    for (int64_t i = 0; !(flags & MSG_TRUNC) && i < t->n && at < rc; i++) {
        int64_t part = cl_min(rc - at, (int64_t)t->vec[i].iov_len);
        memcpy(t->vec[i].iov_base, data + at, (size_t)part);
        at += part;
    }
    free(data);
    return rc;
}

/* MSG_ZEROCOPY: nothing, on a socket without SO_ZEROCOPY (net/ipv4/tcp.c: tcp_sendmsg_locked), which is refused. */
#define READS (MSG_PEEK | MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC | MSG_TRUNC)
#define WRITES (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR | MSG_CONFIRM | MSG_DONTROUTE | MSG_ZEROCOPY)

static int check_flags(int flags, int known, bool datagram, bool out)
{
    if (flags & MSG_OOB && out && !datagram)
        return (int)cl_posix_refuse("send with MSG_OOB is not to be had: there are no urgent data here", EOPNOTSUPP);
    if (flags & MSG_MORE && datagram)
        return (int)cl_posix_refuse("send with MSG_MORE is not to be had of datagrams of the dataplane: make one of "
                                    "several pieces by sendmsg",
                                    EOPNOTSUPP);
    if (flags & MSG_OOB)
        return flags & known & MSG_OOB ? 0 : -EINVAL; /* as where none has come */
    if (flags & ~known)
        return (int)cl_posix_refuse("a flag of send or recv is not known here (MSG_FASTOPEN, ...)", EOPNOTSUPP);
    return 0;
}

/* The socket of a call, held; or what is wrong with the call. */
static int64_t socket_for(int fd, const struct msghdr *m, int flags, int allowed, struct cl_posix_socket **out)
{
    int64_t n = (int64_t)m->msg_iovlen;
    if ((int64_t)m->msg_namelen > INT_MAX)
        return -EINVAL;
    if (n < 0 || n > IOV_MAX || cl_posix_is_child()) /* as of a message; of readv and writev it has been looked at */
        return n < 0 || n > IOV_MAX ? -EMSGSIZE : -ECHILD;
    int wrong = cl_linux_check(m->msg_iov, n);
    if (wrong)
        return wrong;
    *out = cl_posix_socket_of(fd);
    if (*out) {
        bool datagram = (*out)->datagram;
        int rc = check_flags(flags, datagram ? allowed | MSG_TRUNC | MSG_OOB : allowed, datagram, allowed == WRITES);
        if (rc)
            cl_posix_socket_put(*out);
        return rc;
    }
    return cl_posix_kind(fd) == CL_POSIX_EPOLL ? -EINVAL : -EBADF; /* as of any file that has no such call */
}

int64_t cl_posix_receive(int fd, struct msghdr *m, int flags)
{
    struct transfer t = {.vec = m->msg_iov, .n = (int64_t)m->msg_iovlen, .peek = flags & MSG_PEEK};
    if (flags & MSG_ERRQUEUE)
        return -EAGAIN; /* nothing is ever in it */
    struct cl_posix_socket *s;
    int64_t rc = socket_for(fd, m, flags, READS, &s);
    if (rc)
        return rc;
    if (s->datagram) {
        rc = cl_posix_datagram_receive(s, m, flags);
    } else {
        bool by_one = (t.peek && t.n > 1) || flags & MSG_TRUNC;
        rc = by_one ? read_by_one_piece(s, &t, flags) : transfer(s, &t, flags);
        if (rc >= 0) { /* nobody is told whom it came from */
            if (m->msg_name)
                m->msg_namelen = 0;
            m->msg_controllen = 0;
            m->msg_flags = 0;
        }
    }
    cl_posix_socket_put(s);
    return rc;
}

int64_t cl_posix_read(int fd, const struct iovec *vec, int64_t n, int flags)
{
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)vec, .msg_iovlen = (size_t)n};
    int wrong = n < 0 || n > IOV_MAX ? -EINVAL : cl_linux_check(vec, n);
    if (wrong)
        return wrong;
    if (!(flags & MSG_PEEK) && cl_linux_bytes(vec, n) == 0 && cl_posix_kind(fd) == CL_POSIX_SOCKET)
        return 0; /* whatever it is (net/socket.c: sock_read_iter) */
    return cl_posix_receive(fd, &m, flags);
}

int64_t cl_posix_send(int fd, const struct msghdr *m, int flags)
{
    struct transfer t = {.vec = m->msg_iov, .n = (int64_t)m->msg_iovlen, .out = true, .more = flags & MSG_MORE};
    struct cl_posix_socket *s;
    int64_t rc = socket_for(fd, m, flags, WRITES, &s);
    if (rc)
        return rc;
    bool datagram = s->datagram;
    socklen_t name_len = cl_min(m->msg_namelen, (socklen_t)sizeof(struct sockaddr_storage));
    if (m->msg_name && !cl_posix_can_read(m->msg_name, name_len))
        rc = -EFAULT;
    else if (!cl_posix_can_read(m->msg_control, m->msg_control ? m->msg_controllen : 0))
        rc = -EFAULT;
    else if (!datagram && m->msg_control && m->msg_controllen)
        rc = cl_posix_refuse("sendmsg with control data is not to be had of connections of the dataplane", EINVAL);
    else
        rc = datagram ? cl_posix_datagram_send(fd, s, m, flags) : transfer(s, &t, flags);
    cl_posix_socket_put(s);
    if (rc == -EPIPE && !datagram && !(flags & MSG_NOSIGNAL))
        raise(SIGPIPE);
    return rc;
}

int64_t cl_posix_write(int fd, const struct iovec *vec, int64_t n, int flags)
{
    if (n < 0 || n > IOV_MAX)
        return -EINVAL;
    const struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)vec, .msg_iovlen = (size_t)n};
    return cl_posix_send(fd, &m, flags);
}
