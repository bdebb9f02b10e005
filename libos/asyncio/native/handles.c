/* Handles: what is to be called, soon or at a time. See native.h.
 *
 * The types' bases are asyncio's own, classes of Python, for their repr, order and accessors. Their slots are never
 * set: members of the same names are ours, and lie behind what the bases have. */
#include "native.h"

#include <structmember.h>

#include <string.h>

static Py_ssize_t behind;      /* where struct handle begins, of both types */
static Py_ssize_t weakrefs_at; /* where they have their weak references; before the object since Python 3.12 */
static PyObject *handle_type, *timer_type;

struct handle *handle_of(PyObject *self)
{
    return (struct handle *)((char *)self + behind);
}

bool is_handle(PyObject *o)
{
    return Py_TYPE(o) == (PyTypeObject *)handle_type || Py_TYPE(o) == (PyTypeObject *)timer_type;
}

/* One without its parts. */
static PyObject *new_empty(bool timer, struct loop *l)
{
    if (!timer && l->n_spare)
        return l->spare[--l->n_spare];
    return PyType_GenericAlloc((PyTypeObject *)(timer ? timer_type : handle_type), 0);
}

PyObject *handle_new(bool timer, PyObject *loop, const struct wanted *w)
{
    PyObject *args = PyTuple_New(w->n_args);
    for (Py_ssize_t i = 0; args && i < w->n_args; i++)
        (void)PyTuple_SetItem(args, i, Py_NewRef(w->args[i])); /* of a new tuple: it does not fail */
    PyObject *context = w->context ? Py_NewRef(w->context) : call_with(imported.copy_context, NULL, NULL);
    PyObject *self = args && context ? new_empty(timer, loop_of(loop)) : NULL;
    if (!self) {
        Py_XDECREF(args);
        Py_XDECREF(context);
        return NULL;
    }
    struct handle *h = handle_of(self);
    h->callback = Py_NewRef(w->callback);
    h->args = args;
    h->context = context;
    h->loop = Py_NewRef(loop);
    h->trace = Py_XNewRef(w->trace);
    h->cancelled = false;
    return self;
}

static int clear(PyObject *self);

static bool has_weakrefs(PyObject *self)
{
    return *(PyObject **)((char *)self + weakrefs_at);
}

void handle_done(struct loop *l, PyObject *self)
{
    bool last = Py_REFCNT(self) == 1 && Py_TYPE(self) == (PyTypeObject *)handle_type && !has_weakrefs(self);
    if (!last) {
        Py_DECREF(self);
        return;
    }
    (void)clear(self); /* which may call anything */
    if (Py_REFCNT(self) == 1 && !has_weakrefs(self) && l->n_spare < SPARE_HANDLES && !l->closed)
        l->spare[l->n_spare++] = self;
    else
        Py_DECREF(self);
}

/* Call context.run(callback, *args). */
static PyObject *run_in(PyObject *context, PyObject *callback, PyObject *args)
{
    Py_ssize_t n = PyTuple_Size(args);
    PyObject *given[2] = {NULL, NULL};
    if (n <= 2) {
        for (Py_ssize_t i = 0; i < n; i++)
            given[i] = PyTuple_GetItem(args, i);
        return call_method(context, names.run, callback, given[0], given[1]);
    }
    PyObject *run = PyObject_GetAttr(context, names.run), *first = run ? PyTuple_Pack(1, callback) : NULL;
    PyObject *all = first ? PySequence_Concat(first, args) : NULL;
    PyObject *result = all ? PyObject_Call(run, all, NULL) : NULL;
    Py_XDECREF(run);
    Py_XDECREF(first);
    Py_XDECREF(all);
    return result;
}

PyObject *take_exception(void)
{
    PyObject *type, *value, *trace;
    if (PyErr_ExceptionMatches(PyExc_SystemExit) || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        return NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace)
        (void)PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

/* What comes out of a callback goes to the loop's handler of exceptions. -1: it is for whoever runs the loop. */
static int failed(PyObject *self, PyObject *loop)
{
    PyObject *error = take_exception();
    PyObject *done = error ? PyObject_CallMethodObjArgs(loop, names.callback_failed, self, error, NULL) : NULL;
    Py_XDECREF(error);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int handle_run(PyObject *self)
{
    struct handle *h = handle_of(self);
    if (h->cancelled)
        return 0;
    /* Kept, for the callback may cancel its own handle. */
    PyObject *callback = Py_NewRef(h->callback), *args = Py_NewRef(h->args);
    PyObject *result = run_in(h->context, callback, args);
    Py_DECREF(callback);
    Py_DECREF(args);
    if (cl_unlikely(!result))
        return failed(self, h->loop);
    Py_DECREF(result);
    return 0;
}

static void replace(PyObject **at, PyObject *by)
{
    PyObject *was = *at;
    *at = by;
    Py_XDECREF(was);
}

static PyObject *cancel(PyObject *self, PyObject *unused)
{
    struct handle *h = handle_of(self);
    (void)unused;
    if (h->cancelled)
        Py_RETURN_NONE;
    h->cancelled = true;
    struct loop *l = h->loop ? loop_of(h->loop) : NULL; /* NULL: the collector has been here */
    if (l && h->scheduled)
        l->timers.n_cancelled++;
    if (l && l->debug) {
        PyObject *text = PyObject_Repr(self); /* what it was, for warnings */
        if (!text)
            return NULL;
        replace(&h->repr, text);
    }
    replace(&h->callback, Py_NewRef(Py_None));
    replace(&h->args, Py_NewRef(Py_None));
    Py_RETURN_NONE;
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    const struct handle *h = handle_of(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(h->callback);
    Py_VISIT(h->args);
    Py_VISIT(h->context);
    Py_VISIT(h->loop);
    Py_VISIT(h->repr);
    Py_VISIT(h->trace);
    return 0;
}

static int clear(PyObject *self)
{
    struct handle *h = handle_of(self);
    h->cancelled = true; /* one that is without its parts is not called */
    Py_CLEAR(h->callback);
    Py_CLEAR(h->args);
    Py_CLEAR(h->context);
    Py_CLEAR(h->loop);
    Py_CLEAR(h->repr);
    Py_CLEAR(h->trace);
    return 0;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyObject_ClearWeakRefs(self);
    (void)clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {{"cancel", cancel, METH_NOARGS, "cancel()\n--\n\nIt will not be called."},
                                {NULL, NULL, 0, NULL}};

#define FIELD(name, type, field, flags)                                                                                \
    {                                                                                                                  \
        name, type, offsetof(struct handle, field), flags, NULL                                                        \
    }
static PyMemberDef members[] = {
    FIELD("_callback", T_OBJECT, callback, READONLY), FIELD("_args", T_OBJECT, args, READONLY),
    FIELD("_context", T_OBJECT, context, READONLY),   FIELD("_loop", T_OBJECT, loop, READONLY),
    FIELD("_repr", T_OBJECT, repr, READONLY),         FIELD("_source_traceback", T_OBJECT, trace, READONLY),
    FIELD("_cancelled", T_BOOL, cancelled, READONLY), FIELD("_scheduled", T_BOOL, scheduled, READONLY),
    FIELD("_when", T_DOUBLE, when, READONLY),         {NULL, 0, 0, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},
                              {Py_tp_doc, "What is to be called. Made by the loop."},
                              {0, NULL}};

static PyObject *make(PyObject *module, const char *name, PyObject *base)
{
    PyType_Spec spec = {.name = name,
                        .basicsize = (int)(behind + (Py_ssize_t)sizeof(struct handle)),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        .slots = slots};
    return PyType_FromModuleAndSpec(module, &spec, base);
}

int handles_make_types(PyObject *module)
{
    PyObject *events = PyImport_ImportModule("asyncio.events");
    PyObject *handle = events ? PyObject_GetAttrString(events, "Handle") : NULL;
    PyObject *timer = events ? PyObject_GetAttrString(events, "TimerHandle") : NULL;
    PyObject *size = timer ? PyObject_GetAttrString(timer, "__basicsize__") : NULL;
    PyObject *offset = handle ? PyObject_GetAttrString(handle, "__weakrefoffset__") : NULL;
    Py_ssize_t basic = size ? PyLong_AsSsize_t(size) : -1;
    weakrefs_at = offset ? PyLong_AsSsize_t(offset) : -1;
    if (handle && basic > 0 && weakrefs_at && !PyErr_Occurred()) {
        if (!behind) {
            behind = (basic + 15) / 16 * 16;
            for (PyMemberDef *m = members; m->name; m++)
                m->offset += behind;
        }
        handle_type = make(module, "corelane.libos._asyncio.Handle", handle);
        timer_type = handle_type ? make(module, "corelane.libos._asyncio.TimerHandle", timer) : NULL;
    }
    Py_XDECREF(events);
    Py_XDECREF(handle);
    Py_XDECREF(timer);
    Py_XDECREF(size);
    Py_XDECREF(offset);
    return handle_type && timer_type ? 0 : -1;
}
