/* stdio on a socket: libc's own streams read and write by system calls of its own, past this library. A stream of ours
 * is one with functions (fopencookie), which call ours; but for fileno, which tells of its descriptor, it is as any
 * other. */
#include "next.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct stream {
    int fd;
    FILE *file;
    struct stream *next; /* under the lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *all; /* that are open. Under the lock */

static ssize_t read_stream(void *cookie, char *data, size_t len)
{
    return read(((struct stream *)cookie)->fd, data, len);
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* 0: none of it, with errno, as libc has it of such streams. */
static ssize_t write_stream(void *cookie, const char *data, size_t len)
{
    return write_all(((struct stream *)cookie)->fd, data, len) ? 0 : (ssize_t)len;
}

static int seek_stream(void *cookie, off64_t *at, int whence)
{
    (void)cookie, (void)at, (void)whence;
    errno = ESPIPE;
    return -1;
}

static int close_stream(void *cookie)
{
    struct stream *stream = cookie, **at = &all;
    int fd = stream->fd;
    pthread_mutex_lock(&lock);
    while (*at && *at != stream)
        at = &(*at)->next;
    if (*at)
        *at = stream->next;
    pthread_mutex_unlock(&lock);
    free(stream);
    return close(fd);
}

static FILE *open_stream(int fd, const char *mode)
{
    const cookie_io_functions_t functions = {read_stream, write_stream, seek_stream, close_stream};
    struct stream *stream = malloc(sizeof *stream);
    FILE *file = stream ? fopencookie(stream, mode, functions) : NULL;
    if (!file) {
        free(stream);
        return NULL;
    }
    file->_fileno = fd;
    *stream = (struct stream){.fd = fd, .file = file};
    pthread_mutex_lock(&lock);
    stream->next = all;
    all = stream;
    pthread_mutex_unlock(&lock);
    return file;
}

void cl_preload_flush(void)
{
    if (pthread_mutex_trylock(&lock)) /* by a thread that goes on during exit */
        return;
    for (struct stream *stream = all; stream; stream = stream->next)
        if (ftrylockfile(stream->file) == 0) {
            (void)fflush_unlocked(stream->file);
            funlockfile(stream->file);
        }
    pthread_mutex_unlock(&lock);
}

NEXT(FILE *, fdopen, (int fd, const char *mode), (fd, mode))
PUBLIC FILE *fdopen(int fd, const char *mode)
{
    return is_ours(fd) && kind_of(fd) == CL_POSIX_SOCKET ? open_stream(fd, mode) : next_fdopen(fd, mode);
}
PUBLIC FILE *_IO_fdopen(int fd, const char *mode) __THROW __attribute_malloc__ __attribute__((alias("fdopen")));

static int print(int fd, const char *format, va_list arguments)
{
    char *text;
    int n = vasprintf(&text, format, arguments);
    if (n < 0)
        return n;
    int rc = write_all(fd, text, (size_t)n);
    free(text);
    return rc ? -1 : n;
}

NEXT(int, vdprintf, (int fd, const char *format, va_list arguments), (fd, format, arguments))
PUBLIC int vdprintf(int fd, const char *format, va_list arguments)
{
    return is_ours(fd) ? print(fd, format, arguments) : next_vdprintf(fd, format, arguments);
}

PUBLIC int dprintf(int fd, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vdprintf(fd, format, arguments);
    va_end(arguments);
    return n;
}

/* Of _FORTIFY_SOURCE: libc's looks closer at %n. */
NEXT(int, __vdprintf_chk, (int fd, int flag, const char *format, va_list arguments), (fd, flag, format, arguments))
PUBLIC int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments)
{
    return is_ours(fd) ? print(fd, format, arguments) : next___vdprintf_chk(fd, flag, format, arguments);
}

PUBLIC int __dprintf_chk(int fd, int flag, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = __vdprintf_chk(fd, flag, format, arguments);
    va_end(arguments);
    return n;
}
