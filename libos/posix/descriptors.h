/* A socket whose address is Linux'. */
#ifndef CORELANE_LIBOS_POSIX_DESCRIPTORS_H
#define CORELANE_LIBOS_POSIX_DESCRIPTORS_H

#include "socket.h"

/* fd, and all that name the same, are Linux' from now on: what was set of it Linux knows already. */
void cl_posix_give_to_linux(int fd, struct cl_posix_socket *s);

#endif
