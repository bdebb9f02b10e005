/* Objects are loaded, or refused with a sentence. argv: their paths. Prints a line for each. */
#include <corelane/libos/service.h>

#include "tests/support/c/check.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const struct cl_service *service = NULL;
        char err[256] = "";
        int rc = cl_service_open(argv[i], &service, err);
        if (rc == 0) {
            CHECK(service->n_work == 1 && service->work[0].port == 9000);
            printf("%s does %s\n", service->name, service->work[0].name);
        } else {
            CHECK(!service && rc < 0 && err[0]);
            printf("%s\n", err);
        }
    }
    return 0;
}
