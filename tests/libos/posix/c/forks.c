/* A program that forks while it has connections: the child says what its calls on them return, and closes them; then
 * the parent goes on with its own. And one that forks before it has any. `forks ADDRESS after|before` */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

int main(int argc, char **argv)
{
    int status;
    at.sin_family = AF_INET;
    if (argc != 3 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1)
        return 2;
    int after = strcmp(argv[2], "after") == 0;
    if (after)
        pair();
    if (fork() == 0) {
        if (!after)
            pair();
        exchange("child");
        printf("closed: %d %d\n", close(c), close(s));
        fflush(stdout);
        exit(0);
    }
    wait(&status);
    if (after)
        exchange("parent");
    return !WIFEXITED(status) || WEXITSTATUS(status);
}
