/* Sockets of ours that come to a program by exec. The runtime that had them has ended, or is another process's: what
 * comes is the placeholder, which is not connected. So that the new program is told, a placeholder carries a mark for
 * as long as it is ours; who begins looks for such, and the first call that uses one says so. */
#ifndef CORELANE_LIBOS_POSIX_INHERITED_H
#define CORELANE_LIBOS_POSIX_INHERITED_H

#include "posix.h"

/* fd's socket is ours from now on, or (false) Linux' after all. */
void cl_posix_mark(int fd, bool ours);
/* What F_GETSIG answers of a socket that has the mark, as if it had none. */
int cl_posix_without_mark(int signal);

#endif
