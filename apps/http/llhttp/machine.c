/* llhttp's machine. See parser.h. */
#include "parser.h"

#if CL_HTTP_PARSES
#include <stdlib.h>
/* It calls this where its generator knows that nothing can come; a library ends no process. */
#define abort() __builtin_unreachable()
#include <llhttp/llhttp.c>
#endif
