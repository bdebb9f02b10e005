/* The module corelane.libos._asyncio. See native.h. */
#include "native.h"

static int add(PyObject *module, const char *name, PyObject *type)
{
    if (!type)
        return -1;
    int rc = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return rc;
}

static int exec(PyObject *module)
{
    if (add(module, "Poller", PyType_FromModuleAndSpec(module, &poller_spec, NULL)) ||
        add(module, "Endpoint", PyType_FromModuleAndSpec(module, &endpoint_spec, NULL)))
        return -1;
    return add(module, "Transport", transport_make_type(module));
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, exec}, {0, NULL}};
static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "corelane.libos._asyncio",
                                    .m_doc = "What the event loop does in C. For corelane.libos.asyncio.",
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit__asyncio(void);
PyMODINIT_FUNC PyInit__asyncio(void)
{
    return PyModuleDef_Init(&module);
}
