/* Questions to the iokernel on the registered connection: one at a time, and without the lock while the answer is
 * waited for, since a stopped iokernel answers only by the timeout. Meanwhile the watcher does not detach, and nobody
 * attaches again, so that the attachment is the same afterwards; port_close ends the wait. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define BUSY_NAP_NS 100000 /* while another thread is telling the iokernel something */
#define BUSY_NAPS 50000    /* five seconds */

int port_lock_to_tell(struct port *port, char *err)
{
    const struct timespec nap = {0, BUSY_NAP_NS};
    pthread_mutex_lock(&port->lock);
    for (uint64_t naps = 0; port->telling && naps < BUSY_NAPS; naps++) {
        pthread_mutex_unlock(&port->lock);
        nanosleep(&nap, NULL);
        pthread_mutex_lock(&port->lock);
    }
    if (!port->telling)
        return 0;
    snprintf(err, CL_CONTROL_ERR_BYTES, "another thread is telling the iokernel something: try again");
    return -EBUSY;
}

int port_begin_telling(struct port *port, char *err)
{
    if (cl_load_relaxed(&port->stopping)) { /* relaxed: port_close sets it under the lock */
        snprintf(err, CL_CONTROL_ERR_BYTES, "the port is being closed");
        return -ECANCELED;
    }
    int fd = port->control_fd;
    port->telling = true;
    port->joining_fd = fd;
    pthread_mutex_unlock(&port->lock);
    return fd;
}

void port_end_telling(struct port *port)
{
    pthread_mutex_lock(&port->lock);
    port->joining_fd = -1;
    port->telling = false;
}

int cl_port_promise(struct cl_nic *nic, const struct cl_control_promise *ask, struct cl_control_promise_ok *answer,
                    char *err)
{
    struct port *port = port_of(nic);
    int rc = port_lock_to_tell(port, err);
    if (rc == 0 && port->control_fd < 0) {
        snprintf(err, CL_CONTROL_ERR_BYTES, "no iokernel is there: wait for one to come");
        rc = -ENOTCONN;
    } else if (rc == 0) {
        struct cl_control_promise message = *ask;
        int fd = port_begin_telling(port, err);
        rc = fd;
        if (fd >= 0) {
            rc = cl_control_promise(fd, &message, answer, (int)port->timeout_ms, err);
            port_end_telling(port);
        }
    }
    pthread_mutex_unlock(&port->lock);
    return rc;
}
