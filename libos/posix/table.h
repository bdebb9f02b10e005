/* From a descriptor to what it is: sockets and epoll descriptors, with who uses them.
 *
 * Memory of an object is recycled, never freed: so whoever looks a descriptor up may touch the object before he knows
 * that it is still that one. `refs` counts the descriptors that name it and the calls that are inside. When the last
 * descriptor goes, `closed` is called; when the last reference does, `end`. */
#ifndef CORELANE_LIBOS_POSIX_TABLE_H
#define CORELANE_LIBOS_POSIX_TABLE_H

#include "posix.h"

struct cl_posix_object {
    uint32_t refs;                     /* 0: it is free. RMW: anybody */
    uint32_t kind;                     /* enum cl_posix_kind, constant */
    uint32_t fds;                      /* that name it. Writers: under the table's lock; readers: anybody */
    uint32_t generation;               /* how often it was made */
    struct cl_posix_object *next_free; /* under the table's lock */
    void (*closed)(struct cl_posix_object *o);
    void (*end)(struct cl_posix_object *o);
};

/* -ENOMEM. kinds: as of cl_posix_open. */
int cl_posix_table_open(uint8_t *kinds);
enum cl_posix_kind cl_posix_kind(int fd);
/* Zeroed memory of `bytes` bytes, one size for each kind, with one reference. NULL: there is none. */
struct cl_posix_object *cl_posix_new(enum cl_posix_kind kind, size_t bytes);
/* Another reference to what the descriptor is; NULL: it is not of that kind. */
struct cl_posix_object *cl_posix_get(int fd, enum cl_posix_kind kind);
void cl_posix_put(struct cl_posix_object *o);
/* fd names o from now on. -EMFILE: there is no place for such a number. */
int cl_posix_enter(int fd, struct cl_posix_object *o);
/* fd is a placeholder that came by exec, of which we know no more. */
void cl_posix_inherit_number(int fd);
/* fd names nothing of ours any more. False: it did not. */
bool cl_posix_leave(int fd);
/* The same in a child, where others may have been in the middle of something: the object stays for ever. */
void cl_posix_abandon(int fd);
/* Of each object of a kind that a descriptor names. */
void cl_posix_each(enum cl_posix_kind kind, void (*fn)(struct cl_posix_object *o));

#endif
