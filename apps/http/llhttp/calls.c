/* llhttp's calls, apart from its machine: both name the same functions with different types. See parser.h. */
#include "parser.h"

#if CL_HTTP_PARSES
#include <stdlib.h>
/* For numbers that llhttp does not have: see machine.c. */
#define abort() __builtin_unreachable()
#include <llhttp/api.c>
#include <llhttp/http.c>
#endif
