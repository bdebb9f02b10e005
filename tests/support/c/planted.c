/* Which of the mistakes in this program is made: CORELANE_PLANTED says its number (tests/support/cltest/planted.py). */
#include <stdlib.h>

int planted_mistake; /* 0: none */

__attribute__((constructor)) static void read_number(void)
{
    const char *number = getenv("CORELANE_PLANTED");
    planted_mistake = number ? atoi(number) : 0;
}
