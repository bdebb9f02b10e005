/* See park.h. */
#include <corelane/runtime/park.h>

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FAILED_NS 10000000 /* between two looks at a device that shows an error and nothing to read */

static struct timespec to_timespec(int64_t ns)
{
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

/* A NIC may move a parker to another word (drivers/port/port.c, rx_sync) while others read it. Relaxed is enough: in
 * cl_park_wake this load comes after the fence, so a waker that still gets the old word is one whose work the sleeper
 * will see. */
static uint32_t *word_of(struct cl_parker *p)
{
    return cl_load_relaxed(&p->word);
}

int cl_park_open_fd(struct cl_parker *p, uint32_t *word)
{
    *p = (struct cl_parker){.word = word, .event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    return p->event_fd < 0 ? -errno : 0;
}

int cl_park_give_fd(struct cl_parker *p)
{
    if (p->event_fd >= 0)
        return 0;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    p->given = 1;
    cl_store_relaxed(&p->event_fd, fd); /* relaxed: wakers who find nobody parked do not use it */
    return 0;
}

void cl_park_close_given(struct cl_parker *p)
{
    if (p->given)
        cl_park_close_fd(p);
    p->given = 0;
}

void cl_park_close_fd(struct cl_parker *p)
{
    if (p->event_fd >= 0)
        close(p->event_fd);
    p->event_fd = -1;
}

void cl_park_begin(struct cl_parker *p)
{
    cl_store_relaxed(word_of(p), CL_PARK_PARKED);
    cl_fence_seq_cst(); /* before the re-check of the work sources */
}

void cl_park_cancel(struct cl_parker *p)
{
    /* Relaxed: only this thread acts on RUNNING; a waker that raced has made at most one needless system call. */
    cl_store_relaxed(word_of(p), CL_PARK_RUNNING);
}

static int futex_flag(const struct cl_parker *p)
{
    return cl_load_relaxed(&p->event_fd) == CL_PARK_FUTEX_PRIVATE ? FUTEX_PRIVATE_FLAG : 0;
}

void cl_park_wait(struct cl_parker *p, int64_t timeout_ns)
{
    struct timespec ts = to_timespec(timeout_ns);
    if (cl_load_relaxed(&p->event_fd) >= 0) {
        cl_park_wait_fd(p, -1, timeout_ns);
        return;
    }
    /* EAGAIN (woken already), EINTR, ETIMEDOUT all mean: re-check. */
    if (timeout_ns != 0)
        syscall(SYS_futex, word_of(p), FUTEX_WAIT | futex_flag(p), CL_PARK_PARKED, timeout_ns < 0 ? NULL : &ts, NULL,
                0);
    cl_store_relaxed(word_of(p), CL_PARK_RUNNING); /* relaxed, for the reason given in cl_park_cancel */
}

static int poll_for(struct pollfd *fds, nfds_t n, int64_t timeout_ns)
{
    struct timespec ts = to_timespec(timeout_ns);
    return ppoll(fds, n, timeout_ns < 0 ? NULL : &ts, NULL);
}

int cl_park_wait_fd(struct cl_parker *p, int device_fd, int64_t timeout_ns)
{
    struct pollfd fds[2] = {{p->event_fd, POLLIN, 0}, {device_fd, POLLIN, 0}};
    int n = poll_for(fds, device_fd >= 0 ? 2 : 1, timeout_ns);
    /* An error that nothing takes away, as of a device that was removed, would end each sleep at once. */
    if (cl_unlikely(n > 0 && fds[0].revents == 0 && !(fds[1].revents & POLLIN)))
        n = poll_for(fds, 1, timeout_ns < 0 ? FAILED_NS : cl_min(timeout_ns, (int64_t)FAILED_NS));
    int err = n < 0 && errno != EINTR ? -errno : 0;
    cl_store_relaxed(word_of(p), CL_PARK_RUNNING);
    if (n > 0 && (fds[0].revents & POLLIN)) {
        uint64_t drained;
        if (read(p->event_fd, &drained, sizeof drained) < 0 && errno != EAGAIN)
            err = -errno;
    }
    return err;
}

bool cl_park_wake(struct cl_parker *p)
{
    return cl_park_wake_fast(p);
}

bool cl_park_wake_parked(struct cl_parker *p)
{
    uint32_t *word = word_of(p); /* once: the one that was exchanged is the one to wake */
    /* One of several wakers makes the system call. Acquire-release: the sleeper's word is handed on whole. */
    if (cl_exchange(word, CL_PARK_RUNNING) != CL_PARK_PARKED)
        return false;
    /* Relaxed: an iokernel takes an uplink's parker over and gives it back while others wake it
     * (iokernel/loop/idle.c). */
    int event_fd = cl_load_relaxed(&p->event_fd);
    if (event_fd >= 0) {
        uint64_t one = 1;
        /* The only failure of an eventfd write that matters, EAGAIN, means that a wake-up is pending anyway. */
        ssize_t ignored = write(event_fd, &one, sizeof one);
        (void)ignored;
    } else {
        syscall(SYS_futex, word, FUTEX_WAKE | futex_flag(p), 1, NULL, NULL, 0);
    }
    return true;
}
