/* A thread's own set, and the watches of its calls. See waits.h. */
#include "waits.h"

#include <pthread.h>
#include <stdlib.h>

/* Of a thread. Its watches are not on its stack, so that one that is left by longjmp leaves nothing there. */
struct own {
    struct cl_posix_set set; /* first */
    struct cl_posix_watch *watches;
    nfds_t room, joined; /* of them: there is memory for; may be joined, if they have a socket */
};

static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void free_own(void *arg)
{
    struct own *own = arg;
    cl_posix_set_close(&own->set);
    free(own->watches);
    free(own);
}

static void make_own_key(void)
{
    pthread_key_create(&own_key, free_own);
}

struct cl_posix_set *cl_posix_own_set(void)
{
    pthread_once(&own_once, make_own_key);
    struct own *own = pthread_getspecific(own_key);
    if (own)
        return &own->set;
    if (!(own = calloc(1, sizeof *own)))
        return NULL;
    if (cl_posix_set_open(&own->set)) {
        free(own);
        return NULL;
    }
    pthread_setspecific(own_key, own);
    return &own->set;
}

struct cl_posix_watch *cl_posix_own_watches(struct cl_posix_set *set, nfds_t n)
{
    struct own *own = (struct own *)set;
    if (n <= own->room)
        return own->watches;
    struct cl_posix_watch *more = malloc(n * sizeof *more);
    if (!more)
        return NULL;
    free(own->watches);
    own->watches = more;
    own->room = n;
    return more;
}

void cl_posix_own_joined(struct cl_posix_set *set, nfds_t n)
{
    ((struct own *)set)->joined = n;
}

void cl_posix_own_part(void)
{
    struct own *own = pthread_getspecific(own_key);
    for (nfds_t i = 0; own && i < own->joined; i++) {
        struct cl_posix_socket *s = own->watches[i].socket;
        if (!s)
            continue;
        cl_posix_part(&own->watches[i]);
        cl_posix_put(&s->object);
    }
    if (own)
        own->joined = 0;
}
