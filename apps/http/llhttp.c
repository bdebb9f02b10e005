/* llhttp's machine. See llhttp.h. */
#include "llhttp.h"

#if CL_HTTP_PARSES
#include <llhttp/llhttp.c>
#endif
