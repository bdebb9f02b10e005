/* The words by which cores move, at addresses of the port's own: kthreads read and write them there whatever is behind,
 * the current arena or nothing. */
#include "internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The bare system call: kthreads store there meanwhile, which loses nothing that matters, and which TSan would take for
 * a race with the mmap that it knows. The first call, with `at` NULL, makes the place. */
static int map_at(struct port *port, uint8_t *at, size_t bytes, int access, int how, int fd, off_t offset)
{
    long p = syscall(SYS_mmap, at, bytes, access, how, fd, offset);
    if (p == -1)
        return -errno;
    if (!at)
        port->view = (uint8_t *)p;
    return 0;
}

/* Put private memory at the port's addresses. With a quantum nobody says when one is over: probes look at the clock
 * each time. The bits of kthreads stay 0, which say that the iokernel asks; so with 64 kthreads there is no quantum
 * meanwhile. */
int port_view_nothing(struct port *port)
{
    int how = MAP_PRIVATE | MAP_ANONYMOUS | (port->view ? MAP_FIXED : 0);
    int rc = map_at(port, port->view, port->view_bytes, PROT_READ | PROT_WRITE, how, -1, 0);
    unsigned n = port->nic.n_queues;
    if (rc == 0 && port->wishes.quantum_us) /* relaxed: a flag orders nothing */
        cl_store_relaxed((uint64_t *)(port->view + CL_ARENA_PREEMPT_OFFSET), n < 64 ? ~0ull << n : 0);
    return rc;
}

/* Put the current arena there. The preemption flag is the iokernel's to write. */
int port_view_arena(struct port *port, struct port_arena *a)
{
    size_t page = CL_SHM_PAGE, lines = port->view_bytes - page;
    for (unsigned k = 0; k < port->nic.n_queues; k++)
        cl_store_relaxed(&port_lines(a, k)->signals.timer_tsc, UINT64_MAX); /* zero would be overdue */
    int how = MAP_SHARED | MAP_FIXED;
    int rc = map_at(port, port->view + page, lines, PROT_READ | PROT_WRITE, how, a->memory.fd, (off_t)page);
    return rc < 0 ? rc : map_at(port, port->view, page, PROT_READ, how, a->memory.fd, 0);
}

void port_view_delete(struct port *port)
{
    if (port->view)
        munmap(port->view, port->view_bytes);
}
