/* The loop: what of it is called for each callback, timer and turn. The rest is Python (../loop.py), and asyncio's. See
 * native.h.
 *
 * A turn (_run_once) is asyncio's: what is ready, what has come, what is due is called once, and what those add is for
 * the next turn. But behind protocols that have got data, what they add is called in the same turn, in a second round:
 * a coroutine that waits for data answers before the network is looked at again. */
#include "native.h"

#include <math.h>
#include <string.h>
#include <structmember.h>

#define SLEEP_MOST_S 86400 /* as asyncio's */
#define RESOLUTION_S 1e-9  /* a timer is due if it is nearer than the clock can tell */

/* Time. */

static double seconds_of(int64_t ns)
{
    return (double)ns / 1e9; /* as time.monotonic() */
}

static PyObject *time_method(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyFloat_FromDouble(seconds_of(now_ns()));
}

/* What a call wants. */

static bool is_name(PyObject *name, PyObject *wanted)
{
    return name == wanted || PyUnicode_Compare(name, wanted) == 0;
}

/* The arguments of call_soon(callback, *args, context=None), or with a time before the callback. They are borrowed.
 * leading: names of those that come first. false: an exception is set. */
static bool parse(PyObject *const *args, Py_ssize_t n, PyObject *keywords, PyObject *const *leading,
                  Py_ssize_t n_leading, PyObject **first, struct wanted *w)
{
    Py_ssize_t n_keywords = keywords ? PyTuple_Size(keywords) : 0;
    for (Py_ssize_t i = 0; i < n_leading; i++)
        first[i] = i < n ? args[i] : NULL;
    w->n_args = n > n_leading ? n - n_leading : 0;
    w->args = w->n_args ? args + n_leading : NULL;
    for (Py_ssize_t i = 0; i < n_keywords; i++) {
        PyObject *name = PyTuple_GetItem(keywords, i), **to = NULL;
        if (is_name(name, names.context))
            to = &w->context;
        for (Py_ssize_t j = n; !to && j < n_leading; j++)
            if (is_name(name, leading[j]))
                to = &first[j];
        if (!to) {
            PyErr_Format(PyExc_TypeError, "got an unexpected keyword argument %R", name);
            return false;
        }
        *to = args[n + i];
    }
    if (w->context == Py_None)
        w->context = NULL;
    for (Py_ssize_t i = 0; i < n_leading; i++)
        if (!first[i]) {
            PyErr_Format(PyExc_TypeError, "missing required argument %R", leading[i]);
            return false;
        }
    w->callback = first[n_leading - 1];
    return true;
}

/* In debug mode, asyncio's checks, and where the caller is: w->trace, a reference. */
static bool look_closely(PyObject *self, struct wanted *w, const char *method)
{
    if (cl_likely(!loop_of(self)->debug))
        return true;
    PyObject *name = PyUnicode_FromString(method);
    w->trace = name ? PyObject_CallMethodObjArgs(self, names.look_closely, w->callback, name, NULL) : NULL;
    Py_XDECREF(name);
    return w->trace;
}

static bool is_open(const struct loop *l)
{
    if (cl_unlikely(l->closed))
        PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
    return !l->closed;
}

static PyObject *soon(PyObject *self, const struct wanted *w)
{
    PyObject *handle = handle_new(false, self, w);
    if (handle && ready_put(loop_of(self)->ready, handle))
        Py_CLEAR(handle);
    return handle;
}

PyDoc_STRVAR(call_soon_doc, "call_soon(callback, *args, context=None)\n--\n\nAs of any loop.");

static PyObject *call_soon(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    struct wanted w = {0};
    PyObject *first[1];
    if (!is_open(loop_of(self)) || !parse(args, n, keywords, &names.callback, 1, first, &w) ||
        !look_closely(self, &w, "call_soon"))
        return NULL;
    PyObject *handle = soon(self, &w);
    Py_XDECREF(w.trace);
    return handle;
}

/* _call_soon(callback, args, context): what asyncio's own call_soon_threadsafe calls. */
static PyObject *call_soon_now(PyObject *self, PyObject *given)
{
    PyObject *callback, *args, *context;
    if (!PyArg_ParseTuple(given, "OO!O", &callback, &PyTuple_Type, &args, &context))
        return NULL;
    PyObject *some[8], **at = some;
    Py_ssize_t n = PyTuple_Size(args);
    if (n > (Py_ssize_t)(sizeof some / sizeof *some) && !(at = PyMem_Malloc((size_t)n * sizeof *at)))
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++)
        at[i] = PyTuple_GetItem(args, i);
    struct wanted w = {.callback = callback, .args = at, .n_args = n, .context = context == Py_None ? NULL : context};
    PyObject *handle = NULL;
    if (!loop_of(self)->debug || (w.trace = PyObject_CallMethodObjArgs(self, names.trace, NULL)))
        handle = soon(self, &w);
    Py_XDECREF(w.trace);
    if (at != some)
        PyMem_Free(at);
    return handle;
}

static PyObject *at(PyObject *self, double when, const struct wanted *w)
{
    PyObject *timer = handle_new(true, self, w);
    if (!timer)
        return NULL;
    handle_of(timer)->when = when;
    if (timers_put(&loop_of(self)->timers, timer))
        Py_CLEAR(timer);
    return timer;
}

static PyObject *call_timed(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords,
                            PyObject *const leading[2], bool later)
{
    struct wanted w = {0};
    PyObject *first[2];
    if (!parse(args, n, keywords, leading, 2, first, &w))
        return NULL;
    if (first[0] == Py_None) {
        PyErr_SetString(PyExc_TypeError, later ? "delay must not be None" : "when cannot be None");
        return NULL;
    }
    double when = PyFloat_AsDouble(first[0]);
    if (when == -1.0 && PyErr_Occurred())
        return NULL;
    if (!is_open(loop_of(self)) || !look_closely(self, &w, "call_at"))
        return NULL;
    PyObject *timer = at(self, when + (later ? seconds_of(now_ns()) : 0), &w);
    Py_XDECREF(w.trace);
    return timer;
}

PyDoc_STRVAR(call_later_doc, "call_later(delay, callback, *args, context=None)\n--\n\nAs of any loop.");

static PyObject *call_later(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    PyObject *const leading[] = {names.delay, names.callback};
    return call_timed(self, args, n, keywords, leading, true);
}

PyDoc_STRVAR(call_at_doc, "call_at(when, callback, *args, context=None)\n--\n\nAs of any loop.");

static PyObject *call_at(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    PyObject *const leading[] = {names.when, names.callback};
    return call_timed(self, args, n, keywords, leading, false);
}

PyDoc_STRVAR(create_future_doc, "create_future()\n--\n\nA future of this loop.");

static PyObject *create_future(PyObject *self, PyObject *unused)
{
    struct loop *l = loop_of(self);
    (void)unused;
    if (!l->future_keywords && !(l->future_keywords = Py_BuildValue("{O:O}", names.loop, self)))
        return NULL;
    return PyObject_Call(imported.future, imported.no_arguments, l->future_keywords);
}

PyObject *loop_future(PyObject *loop)
{
    return PyObject_TypeCheck(loop, (PyTypeObject *)imported.loop_type)
               ? create_future(loop, NULL)
               : call_method(loop, names.create_future, NULL, NULL, NULL);
}

/* A turn. */

static int run_one(PyObject *self, PyObject *handle)
{
    if (cl_likely(!loop_of(self)->debug && is_handle(handle)))
        return handle_run(handle);
    PyObject *done = PyObject_CallMethodObjArgs(self, names.run_handle, handle, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int run_some(PyObject *self, uint32_t n)
{
    struct loop *l = loop_of(self);
    PyObject *handle;
    for (int rc; n-- && (handle = ready_take(l->ready));) {
        rc = run_one(self, handle);
        handle_done(l, handle);
        if (rc)
            return rc;
        poller_send_some(l->poller);
    }
    return 0;
}

/* For how long there is nothing to do: ns, or -1. */
static int64_t idle_ns(struct loop *l)
{
    timers_drop_cancelled(&l->timers);
    if (l->ready->n || l->stopping)
        return 0;
    if (!l->timers.n)
        return -1;
    double left = l->timers.at[0].when - seconds_of(now_ns());
    return left <= 0 ? 0 : (int64_t)ceil(cl_min(left, (double)SLEEP_MOST_S) * 1e9);
}

/* Wait, and list what others' descriptors and timers have to say. */
static int look(PyObject *self, struct loop *l)
{
    PyObject *events;
    if (poller_wait(l->poller, l->epoll, idle_ns(l), &events))
        return -1;
    PyObject *done = events ? PyObject_CallMethodObjArgs(self, names.tell_descriptors, events, NULL) : NULL;
    bool failed = events && !done;
    Py_XDECREF(events);
    Py_XDECREF(done);
    if (!failed && PyList_Size(l->interrupts) > 0) {
        done = PyObject_CallMethodObjArgs(self, names.interrupt, NULL);
        Py_XDECREF(done);
        failed = !done;
    }
    if (failed)
        return -1;
    return l->timers.n ? timers_take_due(&l->timers, seconds_of(now_ns()) + RESOLUTION_S, l->ready) : 0;
}

PyDoc_STRVAR(run_once_doc, "_run_once()\n--\n\nA turn. Raises SystemExit and KeyboardInterrupt that come out of\n"
                           "callbacks; the others are called the next time.");

static PyObject *run_once(PyObject *self, PyObject *unused)
{
    struct loop *l = loop_of(self);
    (void)unused;
    if (!l->poller) {
        PyErr_SetString(PyExc_RuntimeError, "the loop has not begun");
        return NULL;
    }
    uint32_t before = l->ready->n;
    int rc = look(self, l);
    uint32_t n = l->ready->n; /* that asyncio would call: more may have come from threads while we waited */
    before = cl_min(before, n);
    if (rc == 0)
        rc = run_some(self, before);
    uint64_t given = l->poller->given;
    if (rc == 0 && anything_ready(l->poller))
        rc = deliver(l->poller);
    if (rc == 0)
        rc = run_some(self, n - before);
    if (rc == 0 && l->poller->given != given && !l->stopping)
        rc = run_some(self, l->ready->n);
    if (l->stopping)
        poller_send(l->poller);
    if (rc)
        return NULL;
    Py_RETURN_NONE;
}

/* Life. */

/* _begin(poller, epoll's descriptor, list of what signals have raised) */
static PyObject *begin(PyObject *self, PyObject *args)
{
    struct loop *l = loop_of(self);
    PyObject *poller, *interrupts;
    int epoll;
    if (!PyArg_ParseTuple(args, "OiO!", &poller, &epoll, &PyList_Type, &interrupts))
        return NULL;
    l->poller = (struct poller *)Py_NewRef(poller);
    l->epoll = epoll;
    l->interrupts = Py_NewRef(interrupts);
    Py_RETURN_NONE;
}

static void drop_spare(struct loop *l)
{
    while (l->n_spare)
        Py_DECREF(l->spare[--l->n_spare]);
}

/* drop_timers(): the loop is closed, nothing is called any more. */
static PyObject *drop_timers(PyObject *self, PyObject *unused)
{
    (void)unused;
    timers_clear(&loop_of(self)->timers);
    drop_spare(loop_of(self));
    Py_RETURN_NONE;
}

static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwds)
{
    (void)args, (void)kwds;
    PyObject *self = PyType_GenericAlloc(type, 0);
    if (self && !(loop_of(self)->ready = (struct ready *)PyType_GenericAlloc((PyTypeObject *)imported.ready_type, 0)))
        Py_CLEAR(self);
    return self;
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    const struct loop *l = loop_of(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)l->poller);
    Py_VISIT((PyObject *)l->ready);
    Py_VISIT(l->interrupts);
    Py_VISIT(l->future_keywords);
    for (unsigned i = 0; i < l->n_spare; i++)
        Py_VISIT(l->spare[i]);
    for (size_t i = 0; i < l->timers.n; i++)
        Py_VISIT(l->timers.at[i].handle);
    return 0;
}

static int clear(PyObject *self)
{
    struct loop *l = loop_of(self);
    Py_CLEAR(l->poller);
    Py_CLEAR(l->interrupts);
    Py_CLEAR(l->future_keywords);
    timers_clear(&l->timers);
    drop_spare(l);
    return 0; /* `ready` stays: it clears itself */
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)clear(self);
    Py_CLEAR(loop_of(self)->ready);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_debug(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(loop_of(self)->debug);
}

static PyObject *debug_field(PyObject *self, void *closure)
{
    (void)closure;
    return get_debug(self, NULL);
}

static int set_debug_field(PyObject *self, PyObject *value, void *closure)
{
    int on = value ? PyObject_IsTrue(value) : 0;
    (void)closure;
    if (on < 0)
        return -1;
    loop_of(self)->debug = on;
    return 0;
}

static PyObject *ready_field(PyObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef((PyObject *)loop_of(self)->ready);
}

/* asyncio's constructor gives a deque of its own. */
static int set_ready_field(PyObject *self, PyObject *value, void *closure)
{
    (void)self, (void)closure;
    if (value && PyObject_Size(value) == 0)
        return 0;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_AttributeError, "what is ready stays where it is");
    return -1;
}

#define FAST (METH_FASTCALL | METH_KEYWORDS)
#define CALLED_FAST(fn) ((PyCFunction)(void (*)(void))(fn))
static PyMethodDef methods[] = {{"call_soon", CALLED_FAST(call_soon), FAST, call_soon_doc},
                                {"call_later", CALLED_FAST(call_later), FAST, call_later_doc},
                                {"call_at", CALLED_FAST(call_at), FAST, call_at_doc},
                                {"create_future", create_future, METH_NOARGS, create_future_doc},
                                {"time", time_method, METH_NOARGS, "time()\n--\n\ntime.monotonic()."},
                                {"get_debug", get_debug, METH_NOARGS, "get_debug()\n--\n\nWhether it looks closely."},
                                {"_run_once", run_once, METH_NOARGS, run_once_doc},
                                {"_call_soon", call_soon_now, METH_VARARGS, NULL},
                                {"_begin", begin, METH_VARARGS, NULL},
                                {"_drop_timers", drop_timers, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {{"_debug", debug_field, set_debug_field, "get_debug()", NULL},
                               {"_ready", ready_field, set_ready_field, "Handles that are called next.", NULL},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef members[] = {{"_closed", T_BOOL, offsetof(struct loop, closed), 0, NULL},
                                {"_stopping", T_BOOL, offsetof(struct loop, stopping), 0, NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, new},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, getset},
                              {Py_tp_members, members},
                              {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},
                              {Py_tp_doc, "The fields and hot methods of a loop."},
                              {0, NULL}};
PyType_Spec loop_spec = {.name = "corelane.libos._asyncio.Loop",
                         .basicsize = sizeof(struct loop),
                         .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                         .slots = slots};
