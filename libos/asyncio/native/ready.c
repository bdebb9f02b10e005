/* Handles that are to be called next, in order: a ring, with as much of a deque's face as asyncio's own code uses. See
 * native.h. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 64 /* a power of two, as all that follow */

static bool grow(struct ready *r)
{
    uint32_t room = r->room ? 2 * r->room : ROOM_FIRST;
    PyObject **at = room ? malloc(room * sizeof(PyObject *)) : NULL;
    if (!at)
        return false;
    for (uint32_t i = 0; i < r->n; i++)
        at[i] = r->at[(r->first + i) & (r->room - 1)];
    free(r->at);
    r->at = at;
    r->room = room;
    r->first = 0;
    return true;
}

int ready_put(struct ready *r, PyObject *handle)
{
    if (cl_unlikely(r->n == r->room) && !grow(r)) {
        PyErr_NoMemory();
        return -1;
    }
    r->at[(r->first + r->n++) & (r->room - 1)] = Py_NewRef(handle);
    return 0;
}

PyObject *ready_take(struct ready *r)
{
    if (r->n == 0)
        return NULL;
    PyObject *handle = r->at[r->first];
    r->first = (r->first + 1) & (r->room - 1);
    r->n--;
    return handle;
}

static PyObject *append(PyObject *self, PyObject *handle)
{
    if (ready_put((struct ready *)self, handle))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *popleft(PyObject *self, PyObject *unused)
{
    PyObject *handle = ready_take((struct ready *)self);
    (void)unused;
    if (!handle)
        PyErr_SetString(PyExc_IndexError, "no handle is ready");
    return handle;
}

static int clear(PyObject *self)
{
    for (PyObject *handle; (handle = ready_take((struct ready *)self));)
        Py_DECREF(handle);
    return 0;
}

static PyObject *clear_method(PyObject *self, PyObject *unused)
{
    (void)unused;
    (void)clear(self);
    Py_RETURN_NONE;
}

static Py_ssize_t length(PyObject *self)
{
    return ((const struct ready *)self)->n;
}

static PyObject *item(PyObject *self, Py_ssize_t i)
{
    const struct ready *r = (const struct ready *)self;
    if (i >= 0 && i < (Py_ssize_t)r->n)
        return Py_NewRef(r->at[(r->first + (uint32_t)i) & (r->room - 1)]);
    PyErr_SetString(PyExc_IndexError, "so many handles are not ready");
    return NULL;
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    const struct ready *r = (const struct ready *)self;
    Py_VISIT(Py_TYPE(self));
    for (uint32_t i = 0; i < r->n; i++)
        Py_VISIT(r->at[(r->first + i) & (r->room - 1)]);
    return 0;
}

static void dealloc(PyObject *self)
{
    struct ready *r = (struct ready *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)clear(self);
    free(r->at);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {{"append", append, METH_O, "append(handle)\n--\n\nBehind all others."},
                                {"popleft", popleft, METH_NOARGS, "popleft()\n--\n\nThe first. Raises IndexError."},
                                {"clear", clear_method, METH_NOARGS, "clear()\n--\n\nDrop all."},
                                {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_traverse, traverse},
                              {Py_tp_clear, clear},
                              {Py_sq_length, length},
                              {Py_sq_item, item},
                              {Py_tp_doc, "Handles that are to be called next. Made by the loop."},
                              {0, NULL}};
PyType_Spec ready_spec = {.name = "corelane.libos._asyncio.Ready",
                          .basicsize = sizeof(struct ready),
                          .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                          .slots = slots};
