/* Preloaded into a broker: each write to a partition's log takes longer while the file $SLOW_DISK exists.  The file holds
   the delay in milliseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(int fd) {
    char link[64], path[4096];
    const char *control = getenv("SLOW_DISK");
    FILE *file = control ? fopen(control, "r") : NULL;
    long delay_ms = 0;
    if (!file) return;
    if (fscanf(file, "%ld", &delay_ms) != 1) delay_ms = 0;
    fclose(file);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 20 || delay_ms <= 0) return;
    path[length] = 0;
    /* a segment is named by its first offset, of 20 digits */
    const char *name = strrchr(path, '/');
    if (!name || strlen(name) != 25 || strcmp(name + 21, ".log")) return;
    struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000};
    nanosleep(&delay, NULL);
}

ssize_t write(int fd, const void *data, size_t size) {
    static ssize_t (*original)(int, const void *, size_t);
    if (!original) original = dlsym(RTLD_NEXT, "write");
    if (size > 0) wait_for_disk(fd);
    return original(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    static ssize_t (*original)(int, const struct iovec *, int);
    if (!original) original = dlsym(RTLD_NEXT, "writev");
    wait_for_disk(fd);
    return original(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    static ssize_t (*original)(int, const void *, size_t, off64_t);
    if (!original) original = dlsym(RTLD_NEXT, "pwrite64");
    wait_for_disk(fd);
    return original(fd, data, size, at);
}
