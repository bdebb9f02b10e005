/* See deadline.h. */
#include "deadline.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEEK_MS 100 /* between two looks at signals that are none to end by, and that nobody takes */

struct cl_deadline {
    struct cl_runtime *rt;
    struct cl_deadline_config config; /* end_fd, signal_fd: copies, its own */
    int cancel_fd;
    pthread_t thread;
};

static bool asked_by_signal(int fd)
{
    uint8_t numbers[256];
    ssize_t n = recv(fd, numbers, sizeof numbers, MSG_PEEK | MSG_DONTWAIT);
    for (ssize_t i = 0; i < n; i++)
        if (numbers[i] == SIGINT || numbers[i] == SIGTERM)
            return true;
    return false;
}

/* True: it was asked to end; false: this is over. */
static bool wait_for_request(const struct cl_deadline *d)
{
    for (bool pause = false;;) {
        struct pollfd fds[3] = {
            {d->cancel_fd, POLLIN, 0}, {d->config.end_fd, POLLIN, 0}, {pause ? -1 : d->config.signal_fd, POLLIN, 0}};
        int n = poll(fds, 3, pause ? PEEK_MS : -1);
        if (fds[0].revents)
            return false;
        if (fds[1].revents || (fds[2].revents && asked_by_signal(d->config.signal_fd)))
            return true;
        pause = n > 0; /* something waits there, and is not for us */
    }
}

static void *watch(void *arg)
{
    const struct cl_deadline *d = arg;
    struct cl_runtime_stuck stuck;
    char text[256], line[320];
    struct pollfd cancel = {d->cancel_fd, POLLIN, 0};
    if (!wait_for_request(d) || poll(&cancel, 1, (int)(d->config.after_ns / 1000000)) != 0)
        return NULL;
    if (cl_runtime_stuck(d->rt, &stuck, text) == 0)
        return NULL; /* the rest is not ours to judge */
    int n = snprintf(line, sizeof line, "corelane: cannot stop: %s does not come back; the process ends\n", text);
    ssize_t ignored = write(d->config.report_fd, line, (size_t)n); /* who cannot be told can be ended all the same */
    (void)ignored;
    d->config.end(1);
    return NULL;
}

static void free_deadline(struct cl_deadline *d)
{
    const int fds[] = {d->cancel_fd, d->config.end_fd, d->config.signal_fd};
    for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(d);
}

int cl_deadline_new(struct cl_runtime *rt, const struct cl_deadline_config *config, struct cl_deadline **out)
{
    struct cl_deadline *d = malloc(sizeof *d);
    if (!d)
        return -ENOMEM;
    *d = (struct cl_deadline){.rt = rt, .config = *config};
    d->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->config.end_fd = fcntl(config->end_fd, F_DUPFD_CLOEXEC, 0);
    d->config.signal_fd = config->signal_fd < 0 ? -1 : fcntl(config->signal_fd, F_DUPFD_CLOEXEC, 0);
    bool open = d->cancel_fd >= 0 && d->config.end_fd >= 0 && (config->signal_fd < 0 || d->config.signal_fd >= 0);
    int rc = open ? 0 : -errno;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = rc ? rc : -pthread_create(&d->thread, NULL, watch, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        free_deadline(d);
        return rc;
    }
    pthread_setname_np(d->thread, "cl-deadline");
    *out = d;
    return 0;
}

void cl_deadline_delete(struct cl_deadline *d)
{
    if (!d)
        return;
    (void)eventfd_write(d->cancel_fd, 1); /* cannot fail: the count is 0 */
    pthread_join(d->thread, NULL);
    free_deadline(d);
}
