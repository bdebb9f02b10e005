/* Turns of the kthread, and sleeping. See native.h. */
#include "native.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MOST 256 /* descriptors that one wait tells of */
#define LOOK_EVERY 8    /* turns without work between two looks at other descriptors */
#define LOOK_NS 20000   /* between two of them while the network keeps the loop busy */
#define FOREVER INT64_MAX

/* The lock. */

static bool is_inside(const struct poller *p)
{
    /* Relaxed: what is compared is either ours, and then we have stored it, or not. */
    return cl_load_relaxed(&p->thread) == (unsigned long)pthread_self();
}

bool lock(struct poller *p, PyGILState_STATE *state)
{
    if (is_inside(p)) {
        if (!p->locked)
            PyEval_RestoreThread(p->state);
        p->locked = true;
        return false;
    }
    *state = PyGILState_Ensure();
    return true;
}

void unlock(bool taken, PyGILState_STATE state)
{
    if (taken)
        PyGILState_Release(state);
}

static void go_in(struct poller *p)
{
    p->locked = true;
    cl_store_relaxed(&p->thread, (unsigned long)pthread_self());
}

/* Others may have the lock, until somebody here needs it, or we come out. */
static void let_others_run(struct poller *p)
{
    if (!p->locked)
        return;
    p->locked = false;
    p->state = PyEval_SaveThread();
}

static void come_out(struct poller *p)
{
    if (!p->locked)
        PyEval_RestoreThread(p->state);
    cl_store_relaxed(&p->thread, 0ul);
}

/* Lists. The caller has the lock. */

static struct endpoint **next_of(struct endpoint *e, bool ready)
{
    return ready ? &e->next_ready : &e->next_served;
}

static void append(struct list *list, struct endpoint *e, bool ready)
{
    Py_INCREF((PyObject *)e);
    *next_of(e, ready) = NULL;
    *(list->last ? next_of(list->last, ready) : &list->first) = e;
    list->last = e;
}

static struct endpoint *pop(struct list *list, bool ready)
{
    struct endpoint *e = list->first;
    if (e && !(list->first = *next_of(e, ready)))
        list->last = NULL;
    return e;
}

void put_ready(struct endpoint *e, unsigned told)
{
    e->told |= (uint8_t)told;
    if (e->is_ready)
        return;
    e->is_ready = true;
    append(&e->poller->ready, e, true);
    e->poller->n_ready++;
}

void put_served(struct endpoint *e, unsigned wants)
{
    e->wants |= (uint8_t)wants;
    if (e->is_served || !e->conn)
        return;
    e->is_served = true;
    append(&e->poller->serve, e, false);
    e->poller->n_serve++;
}

struct endpoint *pop_ready(struct poller *p)
{
    struct endpoint *e = pop(&p->ready, true);
    if (e) {
        e->is_ready = false;
        p->n_ready--;
    }
    return e;
}

/* The connection of the next that is to be served, which is p->serving then; the one before has been. */
static struct cl_tcp_conn *next_served(void *arg)
{
    struct poller *p = arg;
    for (;;) {
        /* Whoever has left it has put it on the other list: this is not its last reference. */
        Py_XDECREF((PyObject *)p->serving);
        p->serving = pop(&p->serve, false);
        if (!p->serving)
            return NULL;
        p->serving->is_served = false;
        p->n_serve--;
        if (p->serving->conn)
            return p->serving->conn;
    }
}

static void serve_one(struct cl_tcp_conn *c, void *arg)
{
    endpoint_serve(c, ((struct poller *)arg)->serving);
}

/* On the kthread. */
static void serve_all(void *arg)
{
    cl_tcp_call_each(next_served, serve_one, arg);
}

/* The kthread. */

PyObject *poller_fail(int error, const char *what)
{
    PyObject *args = Py_BuildValue("(is)", error, what);
    if (args)
        PyErr_SetObject(PyExc_OSError, args);
    Py_XDECREF(args);
    return NULL;
}

int on_kthread(struct poller *p, void (*fn)(void *arg), void *arg, bool more)
{
    int rc;
    if (p->dead)
        return -ESHUTDOWN;
    if (is_inside(p)) { /* in a callback's turn: it is the kthread */
        fn(arg);
        return 0;
    }
    go_in(p);
    rc = more ? cl_kthread_borrow_more(p->sched, 0, fn, arg) : cl_kthread_borrow(p->sched, 0, fn, arg);
    come_out(p);
    return rc;
}

struct posted {
    struct poller *p;
    void (*fn)(void *arg);
    void *arg;
};

/* On a uthread, when the kthread has a core: it was without one when we asked. */
static void run_posted(void *arg)
{
    struct posted *posted = arg;
    PyGILState_STATE state;
    bool taken = lock(posted->p, &state);
    posted->fn(posted->arg);
    if (!posted->p->dead) /* else this may be the last reference, and it may not end here */
        Py_DECREF((PyObject *)posted->p);
    unlock(taken, state);
    free(posted);
}

int post(struct poller *p, void (*fn)(void *arg), void *arg, bool more)
{
    int rc = on_kthread(p, fn, arg, more);
    if (rc != -EAGAIN)
        return rc;
    struct posted *posted = malloc(sizeof *posted);
    if (!posted)
        return -ENOMEM;
    *posted = (struct posted){p, fn, arg};
    rc = cl_runtime_spawn(p->runtime, run_posted, posted);
    if (rc)
        free(posted);
    else
        Py_INCREF((PyObject *)p);
    return rc;
}

static void serve(struct poller *p)
{
    if (p->serve.first)
        (void)post(p, serve_all, p, true); /* fails when the runtime stops */
}

void poller_send(struct poller *p)
{
    if (p->serve.first)
        (void)on_kthread(p, serve_all, p, false);
}

/* The iokernel's answer may take a while. And the port's watcher, which the question waits for, may wait for the
 * lock. */
static int adopt(struct poller *p)
{
    char err[256];
    let_others_run(p);
    return cl_kthread_adopt(p->sched, 0, err);
}

/* A turn. 1: again; 0: the kthread sleeps. */
static int turn(struct poller *p)
{
    if (p->dead)
        return 0;
    int rc = cl_kthread_turn(p->sched, 0);
    if (rc == -EPERM && (rc = adopt(p)) == 0)
        rc = cl_kthread_turn(p->sched, 0);
    p->turns++;
    p->dead = rc == -ESHUTDOWN;
    return p->dead ? 0 : rc;
}

/* Waiting. */

/* Have the timer's descriptor readable at a time. It is watched for edges: nobody reads it. */
static void set_timer(struct poller *p, int64_t at_ns)
{
    struct itimerspec t = {.it_value = {at_ns / 1000000000, at_ns % 1000000000}};
    if (p->timer_ns == (uint64_t)at_ns)
        return;
    p->timer_ns = (uint64_t)at_ns;
    timerfd_settime(p->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

struct waiting {
    int epoll;
    int64_t until_ns; /* 0: not at all; FOREVER */
    struct epoll_event *events;
    int most, n; /* of events: those of others come first */
    bool rang;   /* the timer */
};

/* Sort out what is ours. */
static void look(struct poller *p, struct waiting *w, int timeout_ms)
{
    int n = epoll_wait(w->epoll, w->events, w->most, timeout_ms);
    p->looked_ns = now_ns();
    w->n = n < 0 ? -errno : 0;
    for (int i = 0; i < n; i++) {
        int fd = w->events[i].data.fd;
        if (fd == p->timer_fd) {
            w->rang = true;
            p->timer_ns = 0;
        } else if (fd != p->kthread_fd) {
            w->events[w->n++] = w->events[i];
        } else if (p->dead) {
            epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL);
        }
    }
}

/* Inside, perhaps without the lock. Returns -errno of a turn. */
static int wait_for(struct poller *p, struct waiting *w)
{
    for (unsigned i = 0;; i++) {
        int again = turn(p);
        if (again < 0)
            return again;
        if (anything_ready(p) || w->until_ns == 0) {
            if (!anything_ready(p) || now_ns() - p->looked_ns >= LOOK_NS)
                look(p, w, 0);
            return 0;
        }
        let_others_run(p);
        if (again && i % LOOK_EVERY == 0)
            look(p, w, 0);
        if (!again) {
            if (w->until_ns != FOREVER)
                set_timer(p, w->until_ns);
            look(p, w, -1);
        }
        if (w->n || w->rang || (again && w->until_ns != FOREVER && now_ns() >= w->until_ns))
            return 0;
    }
}

/* [(descriptor, events)] */
static PyObject *list_of(const struct waiting *w)
{
    PyObject *list = PyList_New(w->n);
    for (int i = 0; list && i < w->n; i++) {
        PyObject *item = Py_BuildValue("(iI)", w->events[i].data.fd, (unsigned)w->events[i].events);
        if (!item || PyList_SetItem(list, i, item)) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* Inside, with the lock for as long as there is something to do: the others get it while we wait. */
static int turns(struct poller *p, struct waiting *w)
{
    go_in(p);
    int rc = wait_for(p, w);
    come_out(p);
    return rc;
}

int poller_wait(struct poller *p, int epoll, int64_t timeout_ns, PyObject **events)
{
    struct epoll_event some[EVENTS_MOST];
    struct waiting w = {.epoll = epoll, .events = some, .most = EVENTS_MOST};
    *events = NULL;
    if (anything_ready(p))
        timeout_ns = 0;
    w.until_ns = timeout_ns < 0 ? FOREVER : timeout_ns == 0 ? 0 : now_ns() + timeout_ns;
    serve(p);
    int rc = turns(p, &w);
    if (rc < 0) {
        poller_fail(-rc, cl_adopt_error(rc));
        return -1;
    }
    if (w.n == -EINTR) {
        if (PyErr_CheckSignals())
            return -1;
        w.n = 0;
    }
    if (w.n < 0)
        poller_fail(-w.n, "epoll_wait");
    else if (w.n > 0)
        *events = list_of(&w);
    return w.n == 0 || *events ? 0 : -1;
}

PyDoc_STRVAR(spin_doc,
             "spin(turns, alone)\n--\n\n"
             "For loops that wait by themselves: serve, turn at most so many times, until something is ready,\n"
             "and deliver that. alone: the turns are made without the interpreter's lock. Whether to call it\n"
             "again before the loop sleeps. Raises OSError, and what protocols raise besides Exception.");

static PyObject *spin_method(PyObject *self, PyObject *args)
{
    struct poller *p = (struct poller *)self;
    int turns, alone, again = 1;
    if (!PyArg_ParseTuple(args, "ip", &turns, &alone))
        return NULL;
    serve(p);
    go_in(p);
    if (alone)
        let_others_run(p);
    for (int i = 0; i < turns && again > 0 && !anything_ready(p); i++)
        again = turn(p);
    come_out(p);
    if (again < 0)
        return poller_fail(-again, cl_adopt_error(again));
    if (!anything_ready(p))
        return PyBool_FromLong(again);
    if (deliver(p))
        return NULL;
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(counts_doc, "counts()\n--\n\n(turns, entries into protocols by `deliver`, protocols' calls in them).");

static PyObject *counts_method(PyObject *self, PyObject *unused)
{
    const struct poller *p = (struct poller *)self;
    (void)unused;
    return Py_BuildValue("(KKK)", (unsigned long long)p->turns, (unsigned long long)p->bursts,
                         (unsigned long long)p->told);
}

PyDoc_STRVAR(close_doc, "close()\n--\n\nReset what is connected, listen no more. May be called twice.");

static PyObject *close_method(PyObject *self, PyObject *unused)
{
    struct poller *p = (struct poller *)self;
    (void)unused;
    ports_close(p);
    while (p->sockets)
        datagrams_close(p->sockets);
    (void)datagrams_deliver(p); /* of those that are closed the last reference, perhaps */
    while (p->all)
        endpoint_forget(p->all);
    for (struct endpoint *e; (e = pop(&p->serve, false)); p->n_serve--)
        Py_DECREF((PyObject *)e);
    for (struct endpoint *e; (e = pop_ready(p));)
        Py_DECREF((PyObject *)e);
    if (p->timer_fd >= 0)
        close(p->timer_fd);
    p->timer_fd = -1;
    p->dead = true;
    Py_RETURN_NONE;
}

/* Life. */

static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwds)
{
    unsigned long long runtime;
    PyObject *endpoint_type;
    if (kwds && PyDict_Size(kwds))
        return PyErr_Format(PyExc_TypeError, "Poller takes no keywords");
    if (!PyArg_ParseTuple(args, "KO", &runtime, &endpoint_type))
        return NULL;
    struct poller *p = (struct poller *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!p)
        return NULL;
    p->runtime = (struct cl_runtime *)(uintptr_t)runtime;
    p->sched = cl_runtime_sched(p->runtime);
    p->endpoint_type = Py_NewRef(endpoint_type);
    p->kthread_fd = cl_kthread_fd(p->sched, 0);
    p->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (p->timer_fd >= 0 && p->kthread_fd >= 0) {
        cl_kthread_alone(p->sched, 0, true); /* its loop alone sleeps for it */
        return (PyObject *)p;
    }
    int error = p->timer_fd < 0 ? errno : -p->kthread_fd;
    Py_DECREF((PyObject *)p);
    return poller_fail(error, "make a poller");
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    struct poller *p = (struct poller *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(p->endpoint_type);
    for (struct port *port = p->ports; port; port = port->next)
        Py_VISIT(port->listeners);
    return 0;
}

static int clear(PyObject *self)
{
    struct poller *p = (struct poller *)self;
    for (struct port *port = p->ports; port; port = port->next)
        Py_CLEAR(port->listeners);
    return 0;
}

static void dealloc(PyObject *self)
{
    struct poller *p = (struct poller *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_DECREF(close_method(self, NULL));
    Py_CLEAR(p->endpoint_type);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_timer(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(((struct poller *)self)->timer_fd);
}

static PyMethodDef methods[] = {
    {"counts", counts_method, METH_NOARGS, counts_doc}, {"close", close_method, METH_NOARGS, close_doc},
    {"listen", poller_listen, METH_VARARGS, NULL},      {"unlisten", poller_unlisten, METH_VARARGS, NULL},
    {"connect", poller_connect, METH_VARARGS, NULL},    {"outgoing", poller_outgoing, METH_NOARGS, NULL},
    {"spin", spin_method, METH_VARARGS, spin_doc},      {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"timer_fd", get_timer, NULL, "To be watched for edges.", NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, new},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, getset},
                              {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},
                              {Py_tp_doc, "Poller(runtime, endpoint type): turns, waits, tells."},
                              {0, NULL}};
PyType_Spec poller_spec = {.name = "corelane.libos._asyncio.Poller",
                           .basicsize = sizeof(struct poller),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           .slots = slots};
