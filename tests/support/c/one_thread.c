/* Preloaded into a program of which a test says that it has one thread (cltest/cbuild.py): a second one ends it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                          void *(*entry)(void *), void *arg)
{
    (void)thread, (void)attributes, (void)entry, (void)arg;
    fprintf(stderr, "it was said to have one thread (one_thread=True), and starts another one\n");
    _Exit(97);
}
