/* A program that forks while it has connections: the child says what its calls on them return, closes them, and has
 * another socket; then the parent goes on with its own. And one that forks before it has any. By fork, or past it.
 *
 *   forks ADDRESS after|before fork|_Fork|clone|call */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in at;
static int c, s;

static void pair(void)
{
    socklen_t len = sizeof at;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    c = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, 1) || getsockname(l, (struct sockaddr *)&at, &len) ||
        connect(c, (struct sockaddr *)&at, sizeof at) || (s = accept(l, NULL, NULL)) < 0) {
        perror("pair");
        exit(1);
    }
    close(l);
}

static void exchange(const char *who)
{
    char data[8] = "";
    long wrote = write(c, "hello", 5), got = wrote < 0 ? -1 : recv(s, data, 5, MSG_WAITALL);
    printf("%s: %ld %ld %s%s\n", who, wrote, got, data, wrote < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
}

static int child(void *after)
{
    if (!after)
        pair();
    exchange("child");
    printf("closed: %d %d\n", close(c), close(s));
    c = socket(AF_INET, SOCK_STREAM, 0);
    printf("another: %d %d\n", c >= 0, close(c));
    fflush(stdout);
    exit(0);
}

static void fork_by(const char *how, void *after)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    pid_t pid = -1;
    if (strcmp(how, "fork") == 0)
        pid = fork();
    else if (strcmp(how, "_Fork") == 0)
        pid = _Fork();
    else if (strcmp(how, "call") == 0)
        pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    else if (strcmp(how, "clone") == 0)
        pid = clone(child, stack + sizeof stack, SIGCHLD, after);
    if (pid < 0)
        exit(2);
    if (pid == 0)
        child(after);
}

int main(int argc, char **argv)
{
    int status;
    at.sin_family = AF_INET;
    if (argc != 4 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1)
        return 2;
    int after = strcmp(argv[2], "after") == 0;
    if (after)
        pair();
    fork_by(argv[3], after ? &after : NULL);
    wait(&status);
    if (after)
        exchange("parent");
    return !WIFEXITED(status) || WEXITSTATUS(status);
}
