/* Preloaded into a broker: each write to a partition's log takes longer while the file $SLOW_DISK exists, and each send
   to a socket while $SLOW_NETWORK exists.  The files hold the delay in milliseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long delay_of(const char *variable) {
    const char *control = getenv(variable);
    FILE *file = control ? fopen(control, "r") : NULL;
    long delay_ms = 0;
    if (!file) return 0;
    if (fscanf(file, "%ld", &delay_ms) != 1) delay_ms = 0;
    fclose(file);
    return delay_ms;
}

static void wait_ms(long delay_ms) {
    struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000};
    if (delay_ms > 0) nanosleep(&delay, NULL);
}

static int is_log(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 20) return 0;
    path[length] = 0;
    /* a segment is named by its first offset, in 20 digits */
    const char *name = strrchr(path, '/');
    return name && strlen(name) == 25 && !strcmp(name + 21, ".log");
}

static void be_slow(int fd) {
    struct stat about;
    long delay_ms;
    if (fstat(fd, &about)) return;
    if (S_ISSOCK(about.st_mode)) {
        wait_ms(delay_of("SLOW_NETWORK"));
    } else if (S_ISREG(about.st_mode) && (delay_ms = delay_of("SLOW_DISK")) > 0 && is_log(fd)) {
        wait_ms(delay_ms);
    }
}

ssize_t write(int fd, const void *data, size_t size) {
    static ssize_t (*original)(int, const void *, size_t);
    if (!original) original = dlsym(RTLD_NEXT, "write");
    if (size > 0) be_slow(fd);
    return original(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    static ssize_t (*original)(int, const struct iovec *, int);
    if (!original) original = dlsym(RTLD_NEXT, "writev");
    be_slow(fd);
    return original(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    static ssize_t (*original)(int, const void *, size_t, off64_t);
    if (!original) original = dlsym(RTLD_NEXT, "pwrite64");
    be_slow(fd);
    return original(fd, data, size, at);
}

ssize_t sendfile64(int out, int in, off64_t *at, size_t size) {
    static ssize_t (*original)(int, int, off64_t *, size_t);
    if (!original) original = dlsym(RTLD_NEXT, "sendfile64");
    be_slow(out);
    return original(out, in, at, size);
}
