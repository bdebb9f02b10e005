/* See replacing.h. */
#include "replacing.h"
#include "report.h"

#include "../../../runtime/control.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *group; /* NULL: nobody is waited for */
static int members;
static double until;

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* How many applications of a name drain, in an iokernel's statistics (iokernel/control/statistics.py): one's state
 * stands behind its name. */
static int draining_in(const char *json, const char *name)
{
    char key[96];
    int n = 0;
    snprintf(key, sizeof key, "\"name\": \"%s\", \"pid\": ", name);
    while ((json = strstr(json, key))) {
        static const char state[] = "\"state\": ", drains[] = "\"draining\"";
        json = strstr(json, state);
        if (!json)
            break;
        json += strlen(state);
        n += strncmp(json, drains, strlen(drains)) == 0;
    }
    return n;
}

/* 0, too, if there is no iokernel any more, which is an event of its own. */
static int draining(const struct options *o)
{
    char err[CL_CONTROL_ERR_BYTES], *json = NULL;
    int n = 0, fd = cl_control_connect(o->socket, 1000, err);
    if (fd < 0)
        return 0;
    if (cl_control_stats(fd, &json, 2000, err) >= 0)
        n = draining_in(json, group);
    cl_control_free(json);
    cl_control_close(fd);
    return n;
}

void replacing_begin(const struct options *o, const char *name, int others)
{
    char line[160];
    if (!others) {
        snprintf(line, sizeof line, "nobody else was attached as %s", name);
        report_replaced(o, line, 0, 0);
        return;
    }
    snprintf(line, sizeof line, "%d other member%s of %s drain%s", others, others == 1 ? "" : "s", name,
             others == 1 ? "s" : "");
    report_event(o, "draining", line);
    group = name;
    members = others;
    until = now_s() + o->wait_s;
}

bool replacing_look(const struct options *o)
{
    char line[200];
    int left = group ? draining(o) : 0;
    if (!group || (left && now_s() < until))
        return group != NULL;
    if (left)
        snprintf(line, sizeof line, "of %d other members of %s %d still drain: it does not wait for them", members,
                 group, left);
    else
        snprintf(line, sizeof line, "all other members of %s have ended", group);
    report_replaced(o, line, members, left);
    group = NULL;
    return false;
}
