/* What a call costs more by a library that stands before libc's: for `corelane bench posix`. The benchmark compiles
 * this file by itself with -DCORELANE_FOREIGN and starts it with the library preloaded; in libcorelane it is empty.
 *
 * The same call on the same descriptor, which the library does not care for: by the name that programs use, by libc's
 * own function, and by a function that does nothing but go on to that one, in blocks that alternate. Prints the median
 * block of each in ns a call, "through direct empty". */
#ifdef CORELANE_FOREIGN

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CALLS 256 /* of a block: some 20 us, which seldom see an interrupt */
#define MOST_BLOCKS 200000

typedef ssize_t reads(int fd, void *data, size_t len);

static reads *own; /* libc's */

/* What anything that stands before libc costs at least. */
static __attribute__((noinline)) ssize_t empty(int fd, void *data, size_t len)
{
    return own(fd, data, len);
}

static double block_ns(reads *fn, int fd)
{
    struct timespec from, to;
    char byte;
    clock_gettime(CLOCK_MONOTONIC_RAW, &from);
    for (int i = 0; i < CALLS; i++)
        (void)!fn(fd, &byte, 0);
    clock_gettime(CLOCK_MONOTONIC_RAW, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / CALLS;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return values[n / 2];
}

int main(int argc, char **argv)
{
    static double through[MOST_BLOCKS], direct[MOST_BLOCKS], bound[MOST_BLOCKS];
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    reads *named = (reads *)dlsym(RTLD_DEFAULT, "read");
    own = libc ? (reads *)dlsym(libc, "read") : NULL;
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 1.0;
    int fd = open("/dev/null", O_RDONLY);
    if (!own || !named || fd < 0) {
        (void)fprintf(stderr, "libc's read, or /dev/null, is not to be had\n");
        return 1;
    }
    if (own == named) {
        (void)fprintf(stderr, "nothing stands before libc's read: is the library preloaded?\n");
        return 1;
    }
    size_t n = 0;
    for (double spent = 0; n < MOST_BLOCKS && (n < 10 || spent < seconds * 1e9); n++) {
        through[n] = block_ns(named, fd);
        direct[n] = block_ns(own, fd);
        bound[n] = block_ns(empty, fd);
        spent += (through[n] + direct[n] + bound[n]) * CALLS;
    }
    printf("%.3f %.3f %.3f\n", median(through, n), median(direct, n), median(bound, n));
    return 0;
}

#endif
