/* Names that calls are given, or tell, as the program that draws calls makes them (fuzz.c): of lengths that no name
 * has, and nowhere. */
#ifndef TESTS_LIBOS_POSIX_FUZZ_NAMES_H
#define TESTS_LIBOS_POSIX_FUZZ_NAMES_H

#include "fuzz_model.h"

#include <limits.h>

/* Where a call tells a name: `to` and `len` as it is given them, NULL: nowhere. */
struct room {
    struct sockaddr_in name;
    socklen_t bytes;
    struct sockaddr *to;
    socklen_t *len;
};

static void draw_room(struct room *r)
{
    static const socklen_t odd[] = {0, 1, 2, 15, 17, 128, INT_MAX, (socklen_t)-1};
    *r = (struct room){.bytes = draw(4) ? sizeof r->name : odd[draw(sizeof odd / sizeof *odd)]};
    r->to = draw(8) ? (struct sockaddr *)&r->name : NULL;
    r->len = draw(8) ? &r->bytes : NULL;
}

/* After a call that has not failed. */
static void say_room(const struct room *r)
{
    bool ours = r->name.sin_addr.s_addr == here.sin_addr.s_addr;
    printf("%u %d %d\n", r->bytes, ours, r->name.sin_port != 0);
}

/* What comes behind an error: the call has done its work, and cannot tell the name. */
static bool cannot_be_told(const struct room *r)
{
    return r->to && (!r->len || *r->len > INT_MAX);
}

static void names(void)
{
    struct slot *s = anyone();
    struct room r;
    if (!s || (keeps_roles && s->kind == FRESH && s->connected)) /* there it keeps its port, too */
        return;
    draw_room(&r);
    if (note(s, "getsockname", getsockname(fd_of(s), r.to, r.len)) == 0)
        say_room(&r);
    draw_room(&r);
    if (note(s, "getpeername", getpeername(fd_of(s), r.to, r.len)) == 0)
        say_room(&r);
}

/* They fail, whatever the socket is, and change nothing. */
static void odd_names(void)
{
    static const socklen_t none[] = {1, 2, 16, 128}, wrong[] = {0, 1, 129, INT_MAX, (socklen_t)-1};
    struct slot *s = anyone();
    struct sockaddr_in at = here;
    bool nowhere = draw(2), binds = draw(2);
    socklen_t len = nowhere ? none[draw(4)] : wrong[draw(5)];
    const struct sockaddr *name = nowhere ? NULL : (struct sockaddr *)&at;
    if (!s)
        return;
    if (binds)
        note(s, "bind", bind(fd_of(s), name, len));
    else
        note(s, "connect", connect(fd_of(s), name, len));
}

#endif
