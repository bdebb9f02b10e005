/* What drivers/blk/below.c makes of a sysfs that a test made: blk_below SYSFS MAJOR MINOR prints its answer. */
static const char *sysfs;
#define CL_SYSFS sysfs
#include "drivers/blk/below.c"

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    sysfs = argv[1];
    dev_t device = makedev((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    printf("%d\n", cl_blk_below(device));
    return 0;
}
